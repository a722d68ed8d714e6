// Memory that all ranks of a group reach: allocated or registered, and given back.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "integration/capi/group_state.h"

namespace cotune::capi {
namespace {

// As Guard; but the body, which gives back what is this rank's own, runs in a stopped group too:
// the caller may free its memory afterwards. What such a group gives is its error all the same. It
// does not run where a stuck call may still use the memory, nor in a forked child, whose parent's
// memory it is.
template <typename Body>
cotune_result GuardTakingBack(cotune_group* group, const Body& body) noexcept {
  bool has_run = false;
  const cotune_result result = Guard(group, [&](cotune_group& self) {
    has_run = true;
    return body(self);
  });
  if (group == nullptr || has_run) return result;
  if (!group->home.IsHere() || group->job().stuck() != nullptr) return result;
  try {
    static_cast<void>(body(*group));
  } catch (...) {
    // The caller gets the error that stopped the group.
  }
  return result;
}

int64_t DeadlineOf(Job& job) {
  return DeadlineAfter(job.clock().now_ns(), job.settings().warm_timeout_ns);
}

tl::unexpected<Error> NoSuchMemory(const char* call, const char* how) {
  return Fail(ErrorCode::kUsage, fmt::format("no memory of this group begins there: {}", how),
              call);
}

// Ends the registration of memory, and then frees it if it is not the caller's.
void GiveBack(cotune_group& group, GroupMemory memory) {
  group.job().groups().UnregisterMemory(memory.data);
}

// Gives back the kept memory for which `is_kept` is false.
template <typename IsKept>
void GiveBackKept(cotune_group& group, const IsKept& is_kept) {
  auto& kept = group.kept_memory;
  const auto first = std::partition(kept.begin(), kept.end(), is_kept);
  for (auto each = first; each != kept.end(); ++each) GiveBack(group, std::move(*each));
  kept.erase(first, kept.end());
}

// Gives back what the caller has given back before, if the last graph has let go of it since.
void Sweep(cotune_group& group) {
  GiveBackKept(group, [](const GroupMemory& kept) { return kept.range->IsInGraph(); });
}

// Ends a caller's use of memory. While a graph uses it, it is only hidden from later calls: every
// rank does that at once, and frees the memory by itself when its own graphs are gone. Peers that
// still have it mapped keep it.
void TakeBack(cotune_group& group, std::map<void*, GroupMemory>::iterator found) {
  GroupMemory memory = std::move(found->second);
  group.memory.erase(found);
  if (!memory.range->IsInGraph()) return GiveBack(group, std::move(memory));
  group.job().groups().HideMemory(memory.data);
  group.kept_memory.push_back(std::move(memory));
}

std::unique_ptr<CapturedMemory::Range> RangeOf(Job& job, const void* data, uint64_t bytes) {
  return std::make_unique<CapturedMemory::Range>(job.captured_memory(), data, bytes);
}

// Ends kept registrations of the caller's memory that overlap memory which is about to be
// registered: the caller registers the same memory anew, or has freed it, and its addresses are
// those of other memory now.
void EndKeptRegistrations(cotune_group& group, const void* data, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  GiveBackKept(group, [&](const GroupMemory& kept) {
    const auto other = reinterpret_cast<uintptr_t>(kept.data);
    const bool is_apart =
        begin < other ? bytes <= other - begin : kept.range->bytes() <= begin - other;
    return kept.buffer != nullptr || is_apart;
  });
}

// Allocates memory of this rank that peers can map, and ends kept registrations at its addresses.
Result<std::unique_ptr<DeviceBuffer>> NewMemory(cotune_group& group, uint64_t bytes) {
  Device& device = group.job().device();
  COTUNE_RETURN_IF_ERROR(device.Attach());
  Sweep(group);
  if (bytes == 0) return Fail(ErrorCode::kUsage, "0 bytes are no memory to register");
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> buffer, device.AllocateShareable(bytes));
  EndKeptRegistrations(group, buffer->data(), bytes);
  return buffer;
}

// One rank's mistake must not leave the others waiting: every rank hears of it.
Status Allocate(cotune_group& group, uint64_t bytes, void** data) {
  Job& job = group.job();
  Result<std::unique_ptr<DeviceBuffer>> buffer = NewMemory(group, bytes);
  if (!buffer) {
    return job.groups().RegisterMemory(Propagate(buffer), nullptr, bytes, DeadlineOf(job));
  }
  void* const begin = (*buffer)->data();
  // The entry is made first, so that nothing throws while the memory is registered and unknown.
  std::map<void*, GroupMemory> made;
  made.emplace(begin, GroupMemory{begin, std::move(*buffer), RangeOf(job, begin, bytes)});
  COTUNE_RETURN_IF_ERROR(job.groups().RegisterMemory({}, begin, bytes, DeadlineOf(job)));
  group.memory.merge(made);
  *data = begin;
  return {};
}

Status Free(cotune_group& group, void* data) {
  if (Status attached = group.job().device().Attach(); !attached) return attached;
  Sweep(group);
  if (data == nullptr) return {};
  const auto found = group.memory.find(data);
  if (found == group.memory.end() || found->second.buffer == nullptr) {
    return NoSuchMemory("cotune_memory_free", "it was not allocated by cotune_memory_allocate");
  }
  TakeBack(group, found);
  return {};
}

Status Register(cotune_group& group, void* data, uint64_t bytes) {
  Job& job = group.job();
  Status own;
  if (data == nullptr || bytes == 0) {
    own = Fail(ErrorCode::kUsage, "there is no memory to register", "cotune_memory_register");
  }
  if (own) own = job.device().Attach();
  if (own) {
    Sweep(group);
    EndKeptRegistrations(group, data, bytes);
  }
  COTUNE_RETURN_IF_ERROR(job.groups().RegisterMemory(own, data, bytes, DeadlineOf(job)));
  group.memory.emplace(data, GroupMemory{data, nullptr, RangeOf(job, data, bytes)});
  return {};
}

Status Unregister(cotune_group& group, void* data) {
  const auto found = group.memory.find(data);
  if (found != group.memory.end() && found->second.buffer != nullptr) {
    return Fail(ErrorCode::kUsage, "memory of cotune_memory_allocate is registered until it goes",
                "cotune_memory_unregister", "", "call cotune_memory_free");
  }
  if (found == group.memory.end()) {
    return NoSuchMemory("cotune_memory_unregister", "it was not registered");
  }
  if (Status attached = group.job().device().Attach(); !attached) return attached;
  Sweep(group);
  TakeBack(group, found);
  return {};
}

}  // namespace
}  // namespace cotune::capi

cotune_group::~cotune_group() {
  if (memory.empty() && kept_memory.empty()) return;
  dispatcher.reset();  // its plans
  const int64_t deadline_ns = cotune::DeadlineAfter(job().clock().now_ns(), call_timeout_ns);
  for (auto& [data, each] : memory) kept_memory.push_back(std::move(each));
  for (cotune::capi::GroupMemory& each : kept_memory) {
    if (each.buffer == nullptr) continue;  // its registration ends with the groups
    // A kernel of a call that failed may still be at it: to lose the memory is better than to lose
    // the context.
    const bool is_in_use =
        each.range->IsInGraphAtEnd() || !job().device().Synchronize(stream, deadline_ns);
    if (is_in_use) {
      cotune::LeaveToProcess(std::move(each.buffer));
    } else {
      cotune::capi::GiveBack(*this, std::move(each));
    }
  }
}

extern "C" {

cotune_result cotune_memory_allocate(cotune_group* group, uint64_t bytes, void** data) {
  return cotune::capi::Guard(
      group,
      [&](cotune_group& self) -> cotune::Status {
        void* unused = nullptr;
        void** const out = data == nullptr ? &unused : data;
        *out = nullptr;
        return cotune::capi::Allocate(self, data == nullptr ? 0 : bytes, out);
      },
      cotune::capi::StopInDoubt);
}

cotune_result cotune_memory_free(cotune_group* group, void* data) {
  return cotune::capi::GuardTakingBack(
      group, [&](cotune_group& self) { return cotune::capi::Free(self, data); });
}

cotune_result cotune_memory_register(cotune_group* group, void* data, uint64_t bytes) {
  return cotune::capi::Guard(
      group, [&](cotune_group& self) { return cotune::capi::Register(self, data, bytes); },
      cotune::capi::StopInDoubt);
}

cotune_result cotune_memory_unregister(cotune_group* group, void* data) {
  return cotune::capi::GuardTakingBack(
      group, [&](cotune_group& self) { return cotune::capi::Unregister(self, data); });
}

}  // extern "C"
