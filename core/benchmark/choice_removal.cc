#include "core/benchmark/choice_removal.h"

#include <utility>

namespace cotune {
namespace {

Outcome OutcomeOf(ErrorCode code) {
  // A peer that does not come although it lives is a launch that does not end.
  return code == ErrorCode::kDeadline || code == ErrorCode::kRankLost ? Outcome::kDeadline
                                                                      : Outcome::kLaunchFailed;
}

}  // namespace

void ChoiceRemoval::RemoveWrong(RacingChoice& choice, std::string reason) {
  choice.has_failed = true;
  choice.verdict.outcome = Outcome::kWrongResult;
  choice.verdict.reason = std::move(reason);
}

Status ChoiceRemoval::RemoveFirst(std::span<RacingChoice* const> failed, const Error& failure,
                                  bool is_interrupted) {
  if (is_interrupted) {
    COTUNE_RETURN_IF_ERROR(MakeGroupsAnew(failed));
    // Another tune measures this cell, with these choices.
    if (parts_.note_attempt != nullptr) parts_.note_attempt(problem_, nullptr);
    return TuneInterrupted();
  }
  RacingChoice& first = *failed.front();
  first.has_failed = true;
  first.verdict.outcome = OutcomeOf(failure.code);
  first.verdict.reason = failure.what;
  return MakeGroupsAnew(failed);
}

Status ChoiceRemoval::MakeGroupsAnew(std::span<RacingChoice* const> failed) {
  std::set<BackendMember*> recreated;
  for (const RacingChoice* choice : failed) {
    for (BackendMember* member : choice->caller->members()) {
      if (!recreated.insert(member).second) continue;
      for (RacingChoice& other : choices_) {
        if (other.caller->Uses(*member)) other.timed.reset();
      }
      parts_.reset_callers(*member);
      if (Status made = parts_.groups.Recreate(*member, parts_.CallDeadlineNs()); !made)
        return made;
    }
  }
  return {};
}

}  // namespace cotune
