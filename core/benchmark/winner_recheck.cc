#include "core/benchmark/winner_recheck.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cotune {

Result<DecidedCell> WinnerRecheck::Run(std::span<RacingChoice> choices, CellResult cell) {
  while (true) {
    DecidedCell decided = Decide(std::move(cell), rules_);
    if (!decided.winner) return decided;
    std::vector<Verdict>& verdicts = decided.cell.verdicts;
    const auto at = std::find_if(verdicts.begin(), verdicts.end(), [&](const Verdict& verdict) {
      return verdict.id == decided.winner->id;
    });
    RacingChoice& choice = choices[static_cast<size_t>(at - verdicts.begin())];
    COTUNE_RETURN_IF_ERROR(check_.Run(choice, CheckBy::kTimedCalls));
    if (!choice.has_failed) {
      if (!choice.verdict.reason.empty()) at->reason = choice.verdict.reason;
      return decided;
    }
    at->outcome = choice.verdict.outcome;
    at->reason = "after its timed runs: " + choice.verdict.reason;
    at->wrong_elements = choice.verdict.wrong_elements;
    at->median_ns = at->warm_median_ns = 0;
    cell = std::move(decided.cell);
  }
}

}  // namespace cotune
