#include "core/choice/choice_caller.h"

#include <exception>

namespace cotune {

Status ChoiceCaller::Precompile(int64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  if (failure_) return tl::make_unexpected(*failure_);
  if (plan_ != nullptr) return {};
  if (member_.group == nullptr) {
    failure_ = Error{ErrorCode::kAborted, "its backend has no group", id().text(), "", "", {}};
    return tl::make_unexpected(*failure_);
  }
  Result<std::unique_ptr<Plan>> plan = Prepare(deadline_ns);
  if (!plan) {
    failure_ = plan.error();
    return tl::make_unexpected(*failure_);
  }
  plan_ = std::move(*plan);
  return {};
}

// An exception would end the process where a thread of its own makes the plan ready.
Result<std::unique_ptr<Plan>> ChoiceCaller::Prepare(int64_t deadline_ns) {
  try {
    return member_.group->Prepare(program_, problem_, choice_, deadline_ns);
  } catch (const std::exception& exception) {
    return Fail(ErrorCode::kInternal, "preparing it threw an exception", id().text(),
                exception.what());
  } catch (...) {
    return Fail(ErrorCode::kInternal, "preparing it threw an exception", id().text(),
                "it is no std::exception");
  }
}

Result<TimedSpan> ChoiceCaller::RunOnce(Device& device, const LaunchArguments& arguments) {
  if (plan_ == nullptr)
    return Fail(ErrorCode::kInternal, "choice was not precompiled", id().text());
  return device.RunOnce(*plan_, arguments);
}

Result<std::unique_ptr<TimedCalls>> ChoiceCaller::PrepareTimed(
    Device& device, std::span<const LaunchArguments> arguments, int32_t repetitions) {
  if (plan_ == nullptr)
    return Fail(ErrorCode::kInternal, "choice was not precompiled", id().text());
  return device.Prepare(*plan_, arguments, repetitions);
}

Status ChoiceCaller::Launch(const LaunchArguments& arguments, const Clock& clock) {
  if (plan_ == nullptr)
    return Fail(ErrorCode::kInternal, "choice was not precompiled", id().text());
  if (problem_.cls.memory == MemoryKind::kHost) return plan_->Run(arguments, clock);
  return plan_->Launch(arguments);
}

void ChoiceCaller::Reset() {
  const std::lock_guard lock(mutex_);
  plan_.reset();
  failure_.reset();
}

}  // namespace cotune
