#include "plugins/loader/adapted_part.h"

#include <utility>

#include "plugins/loader/plugin_status.h"

namespace cotune {
namespace {

// A part, which belongs to no group. The launch may do all of the work.
class AdaptedPart final : public Plan {
 public:
  AdaptedPart(std::shared_ptr<const BackendContext> context, const cotune_program_v1_t& extension,
              std::unique_ptr<const CallSubject> subject, cotune_program_plan_t* plan,
              MemoryKind memory, int32_t device)
      : context_(std::move(context)),
        extension_(extension),
        subject_(std::move(subject)),
        plan_(plan),
        memory_(memory),
        device_(device),
        slot_(context_->watchdog, nullptr) {}
  AdaptedPart(const AdaptedPart&) = delete;
  AdaptedPart& operator=(const AdaptedPart&) = delete;
  ~AdaptedPart() override {
    InvokeWithoutAnswer(*context_, *subject_, "plan_destroy",
                        [&] { extension_.plan_destroy(plan_); });
    if (context_->watchdog != nullptr) context_->watchdog->AwaitReader();
  }

  bool is_capturable() const override { return memory_ == MemoryKind::kCuda; }

  Status Launch(const LaunchArguments& arguments) override {
    cotune_program_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.inputs = arguments.inputs.data();
    launch.outputs = arguments.outputs.data();
    launch.stream.kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    launch.stream.device = device_;
    launch.stream.handle = arguments.stream;
    launch.deadline_ns = deadline_ns_ = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    bool is_called = false;
    const Result<cotune_status_t> status =
        Invoke(*context_, slot_, *subject_, "launch of a part", arguments.deadline_ns, [&] {
          is_called = true;
          return extension_.launch(plan_, &launch, &error);
        });
    if (!status) return is_called ? InFlight(status.error()) : Propagate(status);
    if (*status < 0) return ToError(*status, error, "launch", context_->table.name, {});
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status =
        Invoke(*context_, slot_, *subject_, "progress of a part", deadline_ns_,
               [&] { return extension_.progress(plan_, until_ns, &error); });
    if (!status) return InFlight(status.error());
    if (*status < 0) return ToError(*status, error, "progress", context_->table.name, {});
    return *status == COTUNE_OK;
  }

 private:
  // Adds the warning of LeftInFlight on host memory.
  tl::unexpected<Error> InFlight(Error error) const {
    if (memory_ != MemoryKind::kHost) return tl::make_unexpected(std::move(error));
    return LeftInFlight(*context_, std::move(error));
  }

  const std::shared_ptr<const BackendContext> context_;
  const cotune_program_v1_t& extension_;
  const std::unique_ptr<const CallSubject> subject_;
  cotune_program_plan_t* const plan_;
  const MemoryKind memory_;
  const int32_t device_;
  CallSlot slot_;  // calls of one plan come one at a time
  int64_t deadline_ns_ = 0;
};

}  // namespace

std::unique_ptr<Plan> AdaptPart(std::shared_ptr<const BackendContext> backend,
                                const cotune_program_v1_t& extension,
                                std::unique_ptr<const CallSubject> subject,
                                cotune_program_plan_t* plan, MemoryKind memory, int32_t device) {
  return std::make_unique<AdaptedPart>(std::move(backend), extension, std::move(subject), plan,
                                       memory, device);
}

}  // namespace cotune
