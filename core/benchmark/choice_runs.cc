#include "core/benchmark/choice_runs.h"

#include <optional>
#include <utility>

namespace cotune {

LaunchArguments ChoiceRuns::Arguments() const {
  LaunchArguments arguments;
  buffers_.SetAddresses(arguments, 0);
  arguments.stream = parts_.device.stream();
  arguments.deadline_ns = parts_.CallDeadlineNs();
  return arguments;
}

std::vector<LaunchArguments> ChoiceRuns::ArgumentsOfCopies(const LaunchArguments& arguments) const {
  std::vector<LaunchArguments> of_copies;
  for (int32_t copy = 0; copy < copies_; ++copy) {
    of_copies.push_back(arguments);
    buffers_.SetAddresses(of_copies.back(), copy);
  }
  return of_copies;
}

Result<TimedSpan> ChoiceRuns::RunGuarded(
    RacingChoice& choice, const std::function<Result<TimedSpan>(const LaunchArguments&)>& calls) {
  const LaunchArguments arguments = Arguments();
  // A fresh plan when the group was made anew; otherwise it is there already.
  if (Status prepared = choice.caller->Precompile(arguments.deadline_ns); !prepared) {
    choice.caller->Abort();
    return Propagate(prepared);
  }
  std::vector<BackendGroup*> groups;
  for (const BackendMember* member : choice.caller->members()) {
    groups.push_back(member->group.get());
  }
  parts_.watchdog.Watch(groups, choice.subject, arguments.deadline_ns);
  Result<TimedSpan> span = calls(arguments);
  parts_.watchdog.Unwatch();
  // A kernel that gave up has ended like one that is done; only the group's health says that it
  // did, and which rank was late.
  if (problem_.cls.memory == MemoryKind::kCuda) {
    for (BackendGroup* group : groups) {
      if (Status health = group->Health(); !health) span = Propagate(health);
    }
  }
  if (!span) {
    // A choice that has missed its deadline is to blame when its abort hangs or crashes.
    std::optional<AbortedCall> aborting;
    if (span.error().code == ErrorCode::kDeadline) aborting.emplace(choice.subject);
    choice.caller->Abort();
    aborting.reset();
    // An operation that has not ended, against the rules, ends with its plan: the operands are
    // filled again or freed next.
    if (problem_.cls.memory == MemoryKind::kHost) {
      choice.timed.reset();
      choice.caller->Reset();
    }
    if (parts_.observer.StopRequested()) span.error().code = ErrorCode::kInterrupted;
  }
  return span;
}

Result<TimedSpan> ChoiceRuns::CallOnce(RacingChoice& choice) {
  return RunGuarded(choice, [&](const LaunchArguments& arguments) {
    return choice.caller->RunOnce(parts_.device, arguments);
  });
}

Result<TimedSpan> ChoiceRuns::CallTimed(RacingChoice& choice, int32_t repetitions,
                                        int64_t start_elapsed_ns, bool adds_untimed_call) {
  int64_t start_ns = start_elapsed_ns == 0 ? 0 : steps_.job_begin_ns() + start_elapsed_ns;
  // All ranks have the release of the last step in common.
  if (parts_.device.aligns_ranks()) start_ns = steps_.elapsed_ns();
  return RunGuarded(choice, [&](const LaunchArguments& arguments) -> Result<TimedSpan> {
    if (choice.timed == nullptr || choice.timed_repetitions != repetitions) {
      choice.timed.reset();
      COTUNE_TRY(auto timed, choice.caller->PrepareTimed(
                                 parts_.device, ArgumentsOfCopies(arguments), repetitions));
      choice.timed = std::move(timed);
      choice.timed_repetitions = repetitions;
    }
    if (adds_untimed_call) {
      COTUNE_RETURN_IF_ERROR(choice.timed->Run(0, arguments.deadline_ns));
    }
    return choice.timed->Run(start_ns, arguments.deadline_ns);
  });
}

}  // namespace cotune
