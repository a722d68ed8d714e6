// Takes choices out of a cell's benchmark on all ranks.
#ifndef COTUNE_CORE_BENCHMARK_CHOICE_REMOVAL_H_
#define COTUNE_CORE_BENCHMARK_CHOICE_REMOVAL_H_

#include <set>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/racing_choice.h"
#include "core/ranks/step_record.h"

namespace cotune {

// Collective: every rank removes the same choice for the same reason. What it is given outlives it.
class ChoiceRemoval {
 public:
  ChoiceRemoval(const BenchmarkParts& parts, const Problem& problem,
                std::span<RacingChoice> choices)
      : parts_(parts), problem_(problem), choices_(choices) {}

  // For a choice whose calls ended but whose results are wrong: its group is intact.
  static void RemoveWrong(RacingChoice& choice, std::string reason);
  // For a choice that failed on some rank: also makes the group of its backend anew.
  // kInterrupted, with the groups made anew: a rank gave the call up because the user wants to
  // stop, which is no fault of the choice.
  template <typename Message>
  Status RemoveFailed(RacingChoice& choice, const ExchangedRecords<Message>& all,
                      const Error& failure) {
    RacingChoice* failed[] = {&choice};
    return RemoveFirst(failed, failure, all.SomeFailedWith(ErrorCode::kInterrupted));
  }
  // For choices whose samples followed each other without a step between them: removes the first,
  // which is at fault, for `failure`. Makes the groups of all anew: the others failed because of
  // what it did to their groups or ranks. is_interrupted: as above.
  Status RemoveFirst(std::span<RacingChoice* const> failed, const Error& failure,
                     bool is_interrupted);

 private:
  // All groups of the choices were aborted.
  Status MakeGroupsAnew(std::span<RacingChoice* const> failed);

  const BenchmarkParts& parts_;
  const Problem& problem_;
  std::span<RacingChoice> choices_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CHOICE_REMOVAL_H_
