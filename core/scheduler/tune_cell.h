// One cell that a tune measures.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
#define COTUNE_CORE_SCHEDULER_TUNE_CELL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/reference_results.h"
#include "core/choice/choice_caller.h"
#include "core/choice/multi_template.h"
#include "core/choice/neighbour_pruning.h"

namespace cotune {

// One node at one size.
struct CellPlace {
  MultiTemplate* node = nullptr;
  uint64_t hint_bytes = 0;
  auto operator<=>(const CellPlace&) const = default;

  Problem problem() const { return node->ProblemAt(hint_bytes); }
  // Names the cell as messages to the user do.
  std::string InWords() const { return node->CellInWords(hint_bytes); }
};

// The result of one heat; equal on all ranks.
struct HeatResult {
  DecidedCell decided;
  bool has_only_qualified = false;  // as CellBenchmark reports
  bool has_short_samples = false;   // the same
};

struct TuneCell {
  CellPlace place;
  // The right results of its program; nullptr: a single collective, or too large to be kept.
  std::shared_ptr<ReferenceResults> reference{};
  std::vector<std::unique_ptr<ChoiceCaller>> callers{};  // none once it is measured
  // The callers of choices that do not race, because they were slow at the sizes around it; they
  // race if no other choice works, or if the faster one did not run. None once it is measured.
  std::vector<std::unique_ptr<ChoiceCaller>> slow_callers{};
  bool races_slow_callers = false;           // some of them are in `callers` now
  std::unique_ptr<CellOperands> operands{};  // the last heat's, until it is measured
  std::optional<HeatResult> first_heat{};    // nothing until the first of two was raced
  // `callers` are those of the second heat. False: there is none.
  bool has_second_heat = false;
};

bool HasTwoHeats(const TuneCell& cell);

// Moves the callers of these choices from `callers` to `slow_callers`.
void SetSlowCallersAside(TuneCell& cell, std::span<const SlowChoice> slow);
// Moves the callers of these choices back among those that race; false: the cell has none of them.
bool TakeSlowCallersBack(TuneCell& cell, std::span<const SlowChoice> slow);
// A choice that failed is not tried a second time: it may have waited for a whole timeout.
void DropFailedCallers(TuneCell& cell, const CellResult& result);

// Adds the cell in the user's words to an error that ends the tune: the names of steps have only
// its number.
tl::unexpected<Error> WhileMeasuring(Error error, const CellPlace& place);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
