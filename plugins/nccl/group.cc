#include "plugins/nccl/group.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>

#include "plugins/nccl/captured_exchange.h"
#include "plugins/nccl/deadline_watch.h"

namespace cotune::nccl {
namespace {

// Time that Abort gives a call on another thread to come back before NCCL frees what it works on.
constexpr int64_t kCallReturnsNs = 1'000'000'000;
// Longest wait for an abort that cannot return, because a graph with a captured call lives:
// kernels have left by then.
constexpr std::chrono::milliseconds kGraphHoldsAbort(200);
// How long a group that goes waits for its peers to go too.
constexpr int64_t kRanksLeaveNs = 1'000'000'000;

size_t IndexOf(Collective collective) { return static_cast<size_t>(collective); }

const char* NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
  }
  return "a collective";
}

const char* NameOf(Algorithm algorithm) { return algorithm == Algorithm::kTree ? "tree" : "ring"; }

const char* NameOf(Protocol protocol) {
  if (protocol == Protocol::kSimple) return "simple";
  return protocol == Protocol::kLl ? "ll" : "ll128";
}

}  // namespace

Result<void> Group::CheckMethod(const Problem& problem, const CallMethod& method) const {
  if (method.uses_windows && problem.count > 0 && windows_.is_empty()) {
    return Fail(COTUNE_UNSUPPORTED, "no memory is registered with this group");
  }
  if (!method.decision) return {};
  const std::optional<AllowedDecisions>& allowed = allowed_[IndexOf(problem.collective)];
  if (!allowed) {
    return Fail(COTUNE_UNSUPPORTED,
                "NCCL does not ask this backend for decisions: another communicator was made "
                "before it, and NCCL looks for its tuner once; create the backend first");
  }
  if ((*allowed & DecisionBit(method.decision->algorithm, method.decision->protocol)) != 0)
    return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("NCCL does not allow {} with {} on these GPUs, or NCCL_ALGO or "
                          "NCCL_PROTO rules it out",
                          NameOf(method.decision->algorithm), NameOf(method.decision->protocol)));
}

Result<void> Group::Launch(const Problem& problem, const CallMethod& method,
                           const CallRecord& record, const CallBuffers& buffers,
                           gpu::CuStream stream, int64_t deadline_ns) {
  const std::lock_guard lock(call_mutex_);
  if (HasFailed()) return tl::unexpected(*Declared());
  const uint64_t bytes = sdk::ProblemBytes(problem);
  const uint64_t block_bytes = problem.count * sdk::ElementBytes(problem.type);
  const Collective collective = problem.collective;
  if (method.uses_windows && problem.count > 0 &&
      (!windows_.Holds(buffers.send, collective == Collective::kAllGather ? block_bytes : bytes) ||
       !windows_.Holds(buffers.receive,
                       collective == Collective::kReduceScatter ? block_bytes : bytes))) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                "a buffer does not lie in memory that this group has registered");
  }
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  gpu::CuStreamCaptureStatus capture = gpu::kCuCaptureNone;
  auto asked =
      gpu_.Check(gpu_.driver()->StreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
  if (!asked) return asked;
  const bool is_captured = capture != gpu::kCuCaptureNone;
  if (is_captured && problem.count > 0) {
    const std::string refusal = WhyNotCaptured(
        problem, GraphRegistration::OfProcess(nccl_.version()),
        HandleKindsOf(gpu_.driver(), buffers.send), HandleKindsOf(gpu_.driver(), buffers.receive));
    if (!refusal.empty()) return Fail(COTUNE_UNSUPPORTED, refusal);
    graphs_.Add(gpu_.driver(), stream);
  }
  const uint64_t number = ++launches_;
  if (comparison_) {
    CallRecord call = record;
    call.is_captured = is_captured ? 1 : 0;
    comparison_->Add(call, is_captured ? CallComparison::kNever : deadline_ns);
  }
  const NcclComm comm = method.uses_windows ? windows_.communicator().get() : plain_.get();
  const TunerScope scope(method.decision);
  const NcclResult result = Enqueue(nccl_, problem, buffers, comm, stream);
  if (HasFailed()) return tl::unexpected(*Declared());
  if (result != kNcclSuccess) {
    auto failed = nccl_.Check(result, "a collective", comm);
    if (!failed) Declare(failed.error());
    return failed;
  }
  // In a graph being captured nothing runs now, and there is no deadline.
  if (!is_captured) {
    auto watched = watch_.Add({collective, bytes, number, deadline_ns}, stream);
    if (!watched) return watched;
  }
  if (problem.count == 0) return {};
  if (method.uses_windows && scope.was_asked()) {
    return Fail(COTUNE_UNSUPPORTED, "NCCL did not take its symmetric kernels for this call");
  }
  if (method.decision && !scope.was_followed()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("NCCL did not take {} with {} for this call",
                            NameOf(method.decision->algorithm), NameOf(method.decision->protocol)));
  }
  return {};
}

Failure Group::LateFailure(const LaunchWatch::Launch& launch) const {
  if (comparison_) {
    auto missing = comparison_->MissingCall(launch.number, NowNs() + kComparisonWaitNs);
    if (missing) return *missing;
  }
  return {
      COTUNE_DEADLINE_EXCEEDED, 0, -1,
      fmt::format("{} of {} bytes, call {} of group '{}' on this rank, was not complete by its "
                  "deadline, so its communicators are aborted: a rank died, stopped, or made "
                  "another call",
                  NameOf(launch.collective), launch.bytes, launch.number, meeting_.group_name())};
}

Result<void> Group::RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) {
  // NCCL waits for ranks that died on the way to it.
  const DeadlineWatch watch(deadline_ns - NowNs(), [this] {
    Declare(
        {COTUNE_DEADLINE_EXCEEDED, 0, -1,
         fmt::format("the ranks of group '{}' had not registered memory by the deadline: one is "
                     "slow, stopped, or has died",
                     meeting_.group_name())});
    EndCommunicators();
  });
  const std::lock_guard lock(call_mutex_);
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  Result<void> healthy;
  if (HasFailed()) healthy = tl::unexpected(*Declared());
  auto registered = windows_.Register(healthy, origin_, meeting_, data, bytes, deadline_ns);
  if (HasFailed()) return tl::unexpected(*Declared());
  // A deadline has ended the communicator that makes others.
  if (!registered && origin_.get() == nullptr) Declare(registered.error());
  return registered;
}

void Group::UnregisterMemory(void* data) {
  const std::lock_guard lock(call_mutex_);
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  windows_.Unregister(data);
}

std::optional<Failure> Group::Health() {
  if (!HasFailed()) LookForFailure();
  return Declared();
}

std::optional<Failure> Group::HealthOfCompleteCalls() {
  if (comparison_ && !HasFailed()) {
    comparison_->Await(watch_.Look().complete_launches, NowNs() + kComparisonWaitNs);
  }
  return Health();
}

void Group::StartComparing() {
  comparison_ = std::make_unique<CallComparison>(
      host_, CallComparison::Member{meeting_.group_name(), rank(), world_size()},
      [this](const Failure& failure) {
        // Another thread of the process may be capturing a graph.
        const gpu::RelaxedCaptureMode relaxed(gpu_.driver());
        Declare(failure);
        EndCommunicators();
      });
}

void Group::LookForFailure() {
  // NCCL's own word first: it may know more than that something is late.
  if (std::unique_lock lock(call_mutex_, std::try_to_lock); lock.owns_lock()) {
    const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
    for (const Communicator* communicator : {&plain_, &windows_.communicator()}) {
      if (auto noticed = communicator->AsyncError(); !noticed) Declare(noticed.error());
    }
  }
  const LaunchWatch::State state = watch_.Look();
  if (auto ended = gpu_.Check(state.error, "an operation"); !ended) Declare(ended.error());
  if (state.late) Declare(LateFailure(*state.late));
}

void Group::Declare(const Failure& failure) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) return;
  failure_ = failure;
  has_failed_.store(true, std::memory_order_release);
}

std::optional<Failure> Group::Declared() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Group::Abort() {
  if (is_aborted_.exchange(true)) return;
  {
    // An abort is the last word, also after another failure.
    const std::lock_guard lock(failure_mutex_);
    failure_ = Failure{COTUNE_ABORTED, 0, -1,
                       fmt::format("{} aborted the group", meeting_.NameOf(rank()))};
    has_failed_.store(true, std::memory_order_release);
  }
  EndCommunicators();
}

void Group::EndCommunicators() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (comparison_) comparison_->Close();
  // A watch and a caller may come at once, and what one frees the other must not stop.
  const std::lock_guard end_lock(end_mutex_);
  std::unique_lock lock(call_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    origin_.StopWaiting();
    if (graphs_.IsAny()) {
      // NCCL frees a revoked communicator at its abort, whatever graphs still reach.
      plain_.StopWaiting();
      windows_.communicator().StopWaiting();
    } else {
      plain_.Stop();
      windows_.communicator().Stop();
    }
    // A call that stays in NCCL even so is ended by force.
    const int64_t end_ns = NowNs() + kCallReturnsNs;
    while (!lock.try_lock() && NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // All of them at once: freeing memory of one waits for the kernels of the others.
  const CommunicatorAbort aborts[] = {plain_.StartAbort(), windows_.communicator().StartAbort(),
                                      origin_.StartAbort()};
  const auto begin = std::chrono::steady_clock::now();
  auto end = begin + kGraphHoldsAbort;
  bool are_freed = true;
  for (const CommunicatorAbort& abort : aborts) are_freed = abort.Await(end) && are_freed;
  if (!are_freed && !graphs_.IsAny()) {
    end = begin + kAbortReturns;
    are_freed = true;
    for (const CommunicatorAbort& abort : aborts) are_freed = abort.Await(end) && are_freed;
  }
  if (!are_freed) WarnOfAbort();
}

void Group::WarnOfAbort() const {
  if (host_.log == nullptr) return;
  constexpr int32_t kWarning = 2;
  const std::string text =
      graphs_.IsAny()
          ? fmt::format(
                "group '{}' ended while a CUDA graph with calls of it lives: a replay of "
                "that graph returns, but with wrong results; destroy the graph, "
                "and NCCL frees the group's memory",
                meeting_.group_name())
          : fmt::format(
                "group '{}' ended, but NCCL has not freed its communicators within {} s; "
                "their memory stays in use until it has",
                meeting_.group_name(), kAbortReturns.count());
  host_.log(host_.context, kWarning, text.c_str());
}

// When all ranks leave within a moment, none frees memory that a peer's kernel still reaches: each
// is idle when it comes, and they wait for each other. A rank that comes alone does not wait long.
Group::~Group() {
  watch_.Stop();
  if (comparison_) comparison_->Stop();
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (!HasFailed() && watch_.Look().is_idle) {
    origin_.Destroy(NowNs() + kRanksLeaveNs);
    // A replay may reach a window: it goes with the communicator then, after the last graph.
    if (!graphs_.IsAny()) windows_.UnregisterAll();
  }
  EndCommunicators();
}

}  // namespace cotune::nccl
