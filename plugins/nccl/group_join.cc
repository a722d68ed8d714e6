// How a group comes to be: the ranks meet in the job's store, NCCL makes the communicators, and
// every connection that a choice needs is made before the first launch.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "plugins/nccl/deadline_watch.h"
#include "plugins/nccl/group.h"

namespace cotune::nccl {
namespace {

constexpr uint64_t kWarmUpCount = 64;  // f32 elements of one block

// Device memory for a scope.
class ScratchMemory {
 public:
  ScratchMemory(const Gpu& gpu, uint64_t bytes) : gpu_(gpu) {
    made_ = gpu.Check(gpu.driver()->MemoryAllocate(&pointer_, bytes), "cuMemAlloc");
    if (made_) made_ = gpu.Check(gpu.driver()->SetBytes(pointer_, 0, bytes), "cuMemsetD8");
  }
  ~ScratchMemory() {
    if (pointer_ != 0) gpu_.driver()->MemoryFree(pointer_);
  }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  const Result<void>& made() const { return made_; }
  unsigned char* data() const { return reinterpret_cast<unsigned char*>(pointer_); }

 private:
  const Gpu& gpu_;
  gpu::CuDevicePointer pointer_ = 0;
  Result<void> made_;
};

// A stream for a scope.
class ScratchStream {
 public:
  explicit ScratchStream(const Gpu& gpu) : gpu_(gpu) {
    made_ = gpu.Check(gpu.driver()->StreamCreate(&stream_, gpu::kCuStreamNonBlocking),
                      "cuStreamCreate");
  }
  ~ScratchStream() {
    if (stream_ != nullptr) gpu_.driver()->StreamDestroy(stream_);
  }
  ScratchStream(const ScratchStream&) = delete;
  ScratchStream& operator=(const ScratchStream&) = delete;

  const Result<void>& made() const { return made_; }
  gpu::CuStream get() const { return stream_; }

 private:
  const Gpu& gpu_;
  gpu::CuStream stream_ = nullptr;
  Result<void> made_;
};

}  // namespace

struct Group::WarmUp {
  Collective collective;
  std::optional<Algorithm> algorithm;
};

Group::Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
             const NcclLibrary& nccl, bool compares_calls)
    : host_(host),
      gpu_(gpu),
      nccl_(nccl),
      compares_calls_(compares_calls && params.world_size > 1),
      meeting_(host, params, "nccl"),
      origin_(nccl, host, AbortContext{gpu.driver(), gpu.context()}),
      plain_(nccl, host, AbortContext{gpu.driver(), gpu.context()}),
      windows_(nccl, host, AbortContext{gpu.driver(), gpu.context()}),
      watch_(gpu, host, [this](const LaunchWatch::Launch& late) {
        Declare(LateFailure(late));
        EndCommunicators();
      }) {}

Result<std::unique_ptr<Group>> Group::Join(const cotune_host_t& host,
                                           const cotune_group_params_t& params, const Gpu& gpu,
                                           const NcclLibrary& nccl, bool compares_calls) {
  const gpu::CurrentContext current(gpu.driver(), gpu.context());
  std::unique_ptr<Group> group(new Group(host, params, gpu, nccl, compares_calls));
  const Result<void> connected = group->Connect(params.deadline_ns);
  Result<Announcement> own = Announcement{.nccl_version = nccl.version()};
  if (!connected) own = Propagate(connected);
  const auto ready = group->meeting_.Meet("ready", own, params.deadline_ns);
  if (ready && group->compares_calls_) group->StartComparing();
  if (ready) return group;
  group->Declare(ready.error());
  return Propagate(ready);
}

Result<void> Group::Connect(int64_t deadline_ns) {
  COTUNE_TRY(const auto id, ExchangeId(deadline_ns));
  const Communicator::Member self{rank(), world_size()};
  auto done = origin_.Create(id, self, deadline_ns);
  if (done) done = plain_.CreateFrom(origin_, self, deadline_ns);
  if (done) done = watch_.MakeEvents();
  if (done && world_size() > 1) done = ConnectAll(deadline_ns);
  return done;
}

Result<NcclUniqueId> Group::ExchangeId(int64_t deadline_ns) {
  Result<Announcement> own =
      Announcement{.nccl_version = nccl_.version(), .compares_calls = compares_calls_};
  if (rank() == 0) {
    auto made = nccl_.Check(nccl_->GetUniqueId(&own->id), "ncclGetUniqueId", nullptr);
    if (!made) own = Propagate(made);
  }
  COTUNE_TRY(const auto all, meeting_.Meet("join", own, deadline_ns));
  for (int peer = 1; peer < world_size(); ++peer) {
    const int version = all[static_cast<size_t>(peer)].nccl_version;
    if (version == all.front().nccl_version) continue;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} has NCCL {}, {} has {}: all ranks need the same",
                            meeting_.NameOf(peer), VersionText(version), meeting_.NameOf(0),
                            VersionText(all.front().nccl_version)),
                0, peer);
  }
  for (int peer = 1; peer < world_size(); ++peer) {
    const bool compares = all[static_cast<size_t>(peer)].compares_calls;
    if (compares == all.front().compares_calls) continue;
    const int with = compares ? peer : 0;
    const int without = compares ? 0 : peer;
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("check_calls is on for {} and off for {}: give all ranks the same "
                            "COTUNE_CHECK_CALLS",
                            meeting_.NameOf(with), meeting_.NameOf(without)),
                0, peer);
  }
  return all.front().id;
}

// A communicator in direct mode connects at the first call that needs it, and waits for its peers
// there without a deadline.
Result<void> Group::ConnectAll(int64_t deadline_ns) {
  constexpr WarmUp kWarmUps[] = {
      {Collective::kAllReduce, Algorithm::kTree}, {Collective::kAllReduce, Algorithm::kRing},
      {Collective::kAllGather, Algorithm::kRing}, {Collective::kReduceScatter, Algorithm::kRing},
      {Collective::kBroadcast, Algorithm::kRing}, {Collective::kAllToAll, std::nullopt}};
  const DeadlineWatch watch(deadline_ns - NowNs(), [this] {
    Declare({COTUNE_DEADLINE_EXCEEDED, 0, -1,
             fmt::format("the ranks of group '{}' were not connected by the deadline: one is slow, "
                         "stopped, or cannot be reached",
                         meeting_.group_name())});
    EndCommunicators();
  });
  for (const WarmUp& what : kWarmUps) {
    auto done = WarmUpOnce(what, deadline_ns);
    if (HasFailed()) return tl::unexpected(*Declared());
    if (!done) return done;
  }
  return {};
}

Result<void> Group::WarmUpOnce(const WarmUp& what, int64_t deadline_ns) {
  const Problem problem{.collective = what.collective,
                        .reduction = Reduction::kSum,
                        .type = ElementType::kF32,
                        .count = kWarmUpCount,
                        .world_size = world_size()};
  const uint64_t half_bytes = kWarmUpCount * sizeof(float) * static_cast<uint64_t>(world_size());
  const ScratchMemory memory(gpu_, 2 * half_bytes);
  const ScratchStream stream(gpu_);
  if (!memory.made()) return memory.made();
  if (!stream.made()) return stream.made();
  std::optional<ForcedDecision> decision;
  if (what.algorithm) decision = ForcedDecision{*what.algorithm, Protocol::kSimple, 0};
  {
    const std::lock_guard lock(call_mutex_);
    const TunerScope scope(decision);
    const NcclResult result = Enqueue(nccl_, problem, {memory.data(), memory.data() + half_bytes},
                                      plain_.get(), stream.get());
    auto done = nccl_.Check(result, "a first collective", plain_.get());
    if (!done) return done;
    if (scope.was_asked()) allowed_[static_cast<size_t>(what.collective)] = scope.allowed();
  }
  return AwaitStream(stream.get(), deadline_ns);
}

Result<void> Group::AwaitStream(gpu::CuStream stream, int64_t deadline_ns) const {
  while (true) {
    const gpu::CuResult state = gpu_.driver()->StreamQuery(stream);
    if (state != gpu::kCuErrorNotReady) return gpu_.Check(state, "a first collective");
    if (NowNs() >= deadline_ns || HasFailed()) {
      return Fail(COTUNE_DEADLINE_EXCEEDED, "a first collective was not complete by the deadline");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace cotune::nccl
