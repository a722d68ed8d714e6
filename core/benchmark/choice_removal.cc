#include "core/benchmark/choice_removal.h"

#include <set>
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

Status ChoiceRemoval::Interrupted(RacingChoice& choice) {
  COTUNE_RETURN_IF_ERROR(MakeGroupsAnew(choice));
  // Another tune measures this cell, with this choice.
  if (parts_.note_attempt != nullptr) parts_.note_attempt(problem_, nullptr);
  return TuneInterrupted();
}

Status ChoiceRemoval::RemoveFailed(RacingChoice& choice, const Error& failure) {
  choice.has_failed = true;
  choice.verdict.outcome = OutcomeOf(failure.code);
  choice.verdict.reason = failure.what;
  return MakeGroupsAnew(choice);
}

Status ChoiceRemoval::MakeGroupsAnew(RacingChoice& choice) {
  std::set<BackendMember*> recreated;
  for (BackendMember* member : choice.caller->members()) {
    if (!recreated.insert(member).second) continue;
    for (RacingChoice& other : choices_) {
      if (other.caller->Uses(*member)) other.timed.reset();
    }
    parts_.reset_callers(*member);
    if (Status made = parts_.groups.Recreate(*member, parts_.CallDeadlineNs()); !made) return made;
  }
  return {};
}

}  // namespace cotune
