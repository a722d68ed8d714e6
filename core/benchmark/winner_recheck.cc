#include "core/benchmark/winner_recheck.h"

#include <algorithm>

namespace cotune {

Status WinnerRecheck::Run(std::span<RacingChoice> choices, CellResult& result) {
  while (true) {
    const Result<Winner> winner = SelectWinner(result, rules_);
    if (!winner) return {};
    const auto at = std::find_if(result.verdicts.begin(), result.verdicts.end(),
                                 [&](const Verdict& verdict) { return verdict.id == winner->id; });
    RacingChoice& choice = choices[static_cast<size_t>(at - result.verdicts.begin())];
    if (Status checked = check_.Run(choice, CheckBy::kTimedCalls); !checked) return checked;
    if (!choice.has_failed) return {};
    at->outcome = choice.verdict.outcome;
    at->reason = "after its timed runs: " + choice.verdict.reason;
    at->wrong_elements = choice.verdict.wrong_elements;
    at->median_ns = 0;
  }
}

}  // namespace cotune
