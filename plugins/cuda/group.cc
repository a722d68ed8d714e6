#include "plugins/cuda/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "plugins/cuda/kernel_failure.h"

namespace cotune::cuda {

using border::Fail;
using border::Failure;
using border::Result;

struct Group::Word {
  int32_t status = COTUNE_OK;
  int32_t native_code = 0;
  MemoryOffer offer;
  char message[192] = {};
};

Group::Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
             PeerMemory& memory, const ChoiceLimits& limits)
    : host_(host),
      gpu_(gpu),
      memory_(memory),
      limits_(limits),
      name_(params.name),
      rank_(params.rank),
      world_size_(params.world_size),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size) {}

Result<std::unique_ptr<Group>> Group::Join(const cotune_host_t& host,
                                           const cotune_group_params_t& params, const Gpu& gpu,
                                           PeerMemory& memory, const ChoiceLimits& limits) {
  const gpu::CurrentContext current(gpu.driver(), gpu.context());
  std::unique_ptr<Group> group(new Group(host, params, gpu, memory, limits));
  // Kernels of a group before this one that was aborted may still be on their way out; after the
  // offers no rank has any left, and arenas can be filled.
  Result<MemoryOffer> own = group->OfferArena();
  auto offers = group->Exchange("offer", own, params.deadline_ns);
  if (!offers) return tl::unexpected(offers.error());
  auto mapped = group->MapPeers(*offers);
  if (mapped) mapped = group->FillArena();
  if (!mapped) own = tl::unexpected(mapped.error());
  auto ready = group->Exchange("ready", own, params.deadline_ns);
  if (!ready) return tl::unexpected(ready.error());
  // Every rank is ready, so every rank has read the offers. The other words stay: a slower rank, or
  // one that learns of a failure, may read them after this group is gone; its name is never used
  // again.
  host.store_delete(host.context, group->KeyOf("offer", group->rank_).c_str());
  return group;
}

Group::~Group() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (words_ != nullptr) {
    Abort();
    gpu_.driver()->ContextSynchronize();
    gpu_.driver()->HostFree(words_);
  }
  mappings_.clear();
  if (arena_ != 0) memory_.GiveBack(arena_, kArenaBytes);
}

Result<void> Group::AllocateHostWords() {
  void* words = nullptr;
  const gpu::CudaDriver& driver = gpu_.driver();
  auto done =
      gpu_.Check(driver->HostAllocate(&words, sizeof(HostWords),
                                      gpu::kCuHostAllocDeviceMap | gpu::kCuHostAllocPortable),
                 "cuMemHostAlloc");
  if (!done) return done;
  std::memset(words, 0, sizeof(HostWords));
  words_ = static_cast<HostWords*>(words);
  gpu::CuDevicePointer on_device = 0;
  done =
      gpu_.Check(driver->HostGetDevicePointer(&on_device, words, 0), "cuMemHostGetDevicePointer");
  if (!done) return done;
  auto* mapped = reinterpret_cast<HostWords*>(on_device);
  arguments_.failure = &mapped->failure;
  arguments_.abort = &mapped->abort;
  return {};
}

Result<MemoryOffer> Group::OfferArena() {
  if (auto done = gpu_.Check(gpu_.driver()->ContextSynchronize(), "cuCtxSynchronize"); !done) {
    return tl::unexpected(done.error());
  }
  if (auto done = AllocateHostWords(); !done) return tl::unexpected(done.error());
  auto side_stream = SideStream::Make(gpu_);
  if (!side_stream) return tl::unexpected(side_stream.error());
  side_stream_ = std::move(*side_stream);
  auto arena = memory_.Take(kArenaBytes);
  if (!arena) return tl::unexpected(arena.error());
  arena_ = *arena;
  return memory_.OfferOf(arena_, kArenaBytes);
}

Result<void> Group::MapPeers(const std::vector<MemoryOffer>& offers) {
  arguments_.rank = rank_;
  arguments_.world_size = world_size_;
  for (int peer = 0; peer < world_size_; ++peer) {
    gpu::CuDevicePointer pointer = arena_;
    if (peer != rank_) {
      const auto mapped = memory_.Map(offers[static_cast<size_t>(peer)]);
      if (!mapped) {
        return Fail(mapped.error().status,
                    fmt::format("rank {} of the group: {}", peer, mapped.error().message),
                    mapped.error().native_code);
      }
      pointer = *mapped;
    }
    arguments_.arena[peer] = reinterpret_cast<unsigned char*>(pointer);
  }
  return {};
}

Result<void> Group::FillArena() {
  const gpu::CudaDriver& driver = gpu_.driver();
  auto done = gpu_.Check(driver->SetBytes(arena_, 0, kArenaBytes), "cuMemsetD8");
  for (const ByteRange& range : kSentinelRanges) {
    if (!done) return done;
    done = gpu_.Check(driver->SetBytes(arena_ + range.begin, 0xFF, range.end - range.begin),
                      "cuMemsetD8");
  }
  if (done) done = gpu_.Check(driver->ContextSynchronize(), "cuCtxSynchronize");
  return done;
}

std::string Group::KeyOf(const char* phase, int rank) const {
  return fmt::format("{}/cuda/{}/{}", name_, phase, rank);
}

Result<std::vector<MemoryOffer>> Group::Exchange(const char* phase, const Result<MemoryOffer>& own,
                                                 int64_t deadline_ns) {
  Word word;
  if (own) {
    word.offer = *own;
  } else {
    word.status = own.error().status;
    word.native_code = own.error().native_code;
    const size_t length = std::min(own.error().message.size(), sizeof(word.message) - 1);
    std::memcpy(word.message, own.error().message.data(), length);
  }
  const cotune_status_t put =
      host_.store_put(host_.context, KeyOf(phase, rank_).c_str(), &word, sizeof(word));
  if (!own) return tl::unexpected(own.error());
  if (put != COTUNE_OK) {
    return Fail(put, fmt::format("cannot announce this rank in group '{}' (status {}); is the "
                                 "coordinator running?",
                                 name_, put));
  }
  std::vector<MemoryOffer> offers(static_cast<size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    uint64_t size = 0;
    const cotune_status_t got = host_.store_get(host_.context, KeyOf(phase, peer).c_str(), &word,
                                                sizeof(word), &size, deadline_ns);
    if (got == COTUNE_DEADLINE_EXCEEDED) {
      return Fail(COTUNE_PEER_FAILED,
                  fmt::format("rank {} of the group did not come before the deadline", peer), 0,
                  peer);
    }
    if (got != COTUNE_OK || size != sizeof(word)) {
      return Fail(got == COTUNE_OK ? COTUNE_INVALID_ARGUMENT : got,
                  fmt::format("cannot read what rank {} of group '{}' announced (status {}, {} "
                              "bytes)",
                              peer, name_, got, size));
    }
    if (word.status != COTUNE_OK) {
      word.message[sizeof(word.message) - 1] = '\0';
      return Fail(word.status, fmt::format("rank {} of the group: {}", peer, word.message),
                  word.native_code, peer);
    }
    offers[static_cast<size_t>(peer)] = word.offer;
  }
  return offers;
}

// A kernel that fails sets another value first, while it writes the record.
constexpr unsigned int kWritten = 1;

bool Group::HasFailed() const {
  const volatile unsigned int* is_set = &words_->failure.is_set;
  return *is_set == kWritten || is_aborted_.load(std::memory_order_acquire);
}

std::optional<Failure> Group::Health() const {
  FailureRecord record{};
  if (*static_cast<const volatile unsigned int*>(&words_->failure.is_set) == kWritten) {
    std::atomic_thread_fence(std::memory_order_acquire);
    record = words_->failure;  // never written again
  } else if (is_aborted_.load(std::memory_order_acquire)) {
    record.kind = kAborted;
    record.reporter = rank_;
  } else {
    return std::nullopt;
  }
  return FailureOf(record, rank_, world_size_, limits_);
}

void Group::Abort() {
  is_aborted_.store(true, std::memory_order_release);
  volatile unsigned int* value = &words_->abort.value;
  *value = 1;
}

}  // namespace cotune::cuda
