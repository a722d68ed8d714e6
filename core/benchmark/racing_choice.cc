#include "core/benchmark/racing_choice.h"

#include <string>

namespace cotune {

std::vector<RacingChoice> RacingChoicesOf(std::span<const std::unique_ptr<ChoiceCaller>> callers) {
  std::vector<RacingChoice> choices;
  for (const std::unique_ptr<ChoiceCaller>& caller : callers) {
    const ChoiceId& id = caller->id();
    const std::string backend(id.backend());
    RacingChoice& choice = choices.emplace_back(RacingChoice{
        .caller = caller.get(),
        .verdict = {.id = id},
        .subject = CallSubject::OfChoice(backend, "of backend " + backend, id, caller->problem())});
    choice.verdict.is_default = caller->choice().is_default;
    choice.verdict.numerics = caller->choice().numerics;
  }
  return choices;
}

}  // namespace cotune
