#include "gpu/device/cuda_timed_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gpu/device/driver_status.h"

namespace cotune::gpu {
namespace {

// Calls behind the barrier of the ranks, between two events.
class CudaCalls : public TimedCalls {
 public:
  explicit CudaCalls(const TimingPlace& place)
      : driver_(place.driver),
        stream_(place.stream),
        alignment_(place.alignment),
        clock_(place.clock) {}
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;
  ~CudaCalls() override = default;

  // The ranks line up on their GPUs: the start only names the sample.
  Result<TimedSpan> Run(int64_t start_ns, int64_t deadline_ns) override {
    if (alignment_ != nullptr) {
      const int64_t timeout_ns = std::max<int64_t>(1, deadline_ns - clock_.now_ns());
      COTUNE_RETURN_IF_ERROR(alignment_->Enqueue(stream_.handle(), start_ns, timeout_ns));
    }
    Status queued = stream_.RecordStart();
    if (queued) queued = EnqueueCalls(deadline_ns);
    if (queued) queued = stream_.RecordEnd();
    // Also when something failed: the barrier must not keep the stream.
    Release();
    COTUNE_RETURN_IF_ERROR(queued);
    Result<TimedSpan> span = stream_.AwaitSpan(deadline_ns);
    if (alignment_ == nullptr || alignment_->late_rank() < 0) return span;
    Error late{ErrorCode::kDeadline,
               fmt::format("rank {} had not come to the GPUs' barrier at the deadline",
                           alignment_->late_rank()),
               "",
               "",
               "",
               {}};
    return tl::make_unexpected(std::move(late));
  }

 protected:
  virtual Status EnqueueCalls(int64_t deadline_ns) = 0;
  // Lets the barrier end once all ranks have come; a second time it does nothing.
  void Release() {
    if (alignment_ != nullptr) alignment_->Release();
  }

  const CudaDriver& driver_;
  CudaStream& stream_;

 private:
  RankAlignment* alignment_;  // nullptr with one rank
  const Clock& clock_;
};

// A captured graph of the calls.
class GraphCalls final : public CudaCalls {
 public:
  using CudaCalls::CudaCalls;
  GraphCalls(const GraphCalls&) = delete;
  GraphCalls& operator=(const GraphCalls&) = delete;
  ~GraphCalls() override {
    if (exec_ != nullptr) driver_->GraphExecDestroy(exec_);
  }

  Status Capture(Plan& plan, std::span<const LaunchArguments> arguments, int32_t repetitions) {
    COTUNE_TRY(CuGraph graph, stream_.Capture([&]() -> Status {
      for (int32_t i = 0; i < repetitions; ++i) {
        const LaunchArguments& call = arguments[static_cast<size_t>(i) % arguments.size()];
        if (Status launched = plan.Launch(call); !launched) return launched;
      }
      return {};
    }));
    Status made = Checked(driver_, driver_->GraphInstantiate(&exec_, graph, 0),
                          "cuGraphInstantiateWithFlags");
    driver_->GraphDestroy(graph);
    if (!made) return made;
    // The first launch would pay for it otherwise.
    return Checked(driver_, driver_->GraphUpload(exec_, stream_.handle()), "cuGraphUpload");
  }

 private:
  Status EnqueueCalls(int64_t /*deadline_ns*/) override {
    return Checked(driver_, driver_->GraphLaunch(exec_, stream_.handle()), "cuGraphLaunch");
  }

  CuGraphExec exec_ = nullptr;
};

// The calls of a plan that cannot be captured, one by one. The barrier is released in front of the
// first: a launch may wait for the stream, or for room in the driver's queue, which a barrier that
// waits for the launches would never give. So these calls pay for their launches, as they do in a
// program.
class EagerCalls final : public CudaCalls {
 public:
  EagerCalls(const TimingPlace& place, Plan& plan, std::span<const LaunchArguments> arguments,
             int32_t repetitions)
      : CudaCalls(place),
        plan_(plan),
        arguments_(arguments.begin(), arguments.end()),
        repetitions_(repetitions) {}

 private:
  Status EnqueueCalls(int64_t deadline_ns) override {
    Release();
    for (int32_t i = 0; i < repetitions_; ++i) {
      LaunchArguments call = arguments_[static_cast<size_t>(i) % arguments_.size()];
      call.deadline_ns = deadline_ns;
      if (Status launched = plan_.Launch(call); !launched) return launched;
    }
    return {};
  }

  Plan& plan_;
  const std::vector<LaunchArguments> arguments_;
  const int32_t repetitions_;
};

}  // namespace

Result<std::unique_ptr<TimedCalls>> MakeTimedCalls(const TimingPlace& place, Plan& plan,
                                                   std::span<const LaunchArguments> arguments,
                                                   int32_t repetitions) {
  if (!plan.is_capturable()) {
    return std::make_unique<EagerCalls>(place, plan, arguments, repetitions);
  }
  auto calls = std::make_unique<GraphCalls>(place);
  COTUNE_RETURN_IF_ERROR(calls->Capture(plan, arguments, repetitions));
  return calls;
}

}  // namespace cotune::gpu
