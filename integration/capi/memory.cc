// Memory that all ranks of a group reach: allocated or registered, and given back.
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

// One rank's mistake must not leave the others waiting: every rank hears of it.
Status Allocate(cotune_group& group, uint64_t bytes, void** data) {
  Job& job = group.job();
  COTUNE_TRY(auto region,
             SymmetricRegion::Create(job.device(), job.groups(), bytes, DeadlineOf(job)));
  *data = region->data();
  group.memory.emplace(*data, std::move(region));
  return {};
}

Status Free(cotune_group& group, void* data) {
  if (data == nullptr) return {};
  if (Status attached = group.job().device().Attach(); !attached) return attached;
  if (group.memory.erase(data) == 0) {
    return NoSuchMemory("cotune_memory_free", "it was not allocated by cotune_memory_allocate");
  }
  return {};
}

Status Register(cotune_group& group, void* data, uint64_t bytes) {
  Job& job = group.job();
  Status own;
  if (data == nullptr || bytes == 0) {
    own = Fail(ErrorCode::kUsage, "there is no memory to register", "cotune_memory_register");
  }
  if (own) own = job.device().Attach();
  return job.groups().RegisterMemory(own, data, bytes, DeadlineOf(job));
}

Status Unregister(cotune_group& group, void* data) {
  if (group.memory.contains(data)) {
    return Fail(ErrorCode::kUsage, "memory of cotune_memory_allocate is registered until it goes",
                "cotune_memory_unregister", "", "call cotune_memory_free");
  }
  if (!group.job().groups().IsRegistered(data, 1)) {
    return NoSuchMemory("cotune_memory_unregister", "it was not registered");
  }
  if (Status attached = group.job().device().Attach(); !attached) return attached;
  group.job().groups().UnregisterMemory(data);
  return {};
}

}  // namespace
}  // namespace cotune::capi

cotune_group::~cotune_group() {
  if (memory.empty()) return;
  dispatcher.reset();  // its plans
  const int64_t deadline_ns = cotune::DeadlineAfter(job().clock().now_ns(), call_timeout_ns);
  for (auto& [data, region] : memory) {
    cotune::SymmetricRegion::Retire(std::move(region), stream, deadline_ns);
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
