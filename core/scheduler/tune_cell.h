// One cell that a tune measures.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
#define COTUNE_CORE_SCHEDULER_TUNE_CELL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/benchmark/cell_operands.h"
#include "core/benchmark/reference_results.h"
#include "core/choice/choice_caller.h"
#include "core/choice/multi_template.h"

namespace cotune {

// One node at one size.
struct CellPlace {
  MultiTemplate* node = nullptr;
  uint64_t hint_bytes = 0;
  auto operator<=>(const CellPlace&) const = default;

  Problem problem() const { return node->ProblemAt(hint_bytes); }
};

// The result of the first of two heats; equal on all ranks.
struct FirstHeat {
  DecidedCell decided;
  bool has_only_qualified = false;  // as CellBenchmark reports
  bool has_short_samples = false;   // the same
  // The callers of the cell are those of the second heat. False: there is none.
  bool has_second = false;
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
  std::optional<FirstHeat> first_heat{};
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
