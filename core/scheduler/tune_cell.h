// One cell that a tune measures.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
#define COTUNE_CORE_SCHEDULER_TUNE_CELL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/benchmark/cell_operands.h"
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

struct TuneCell {
  CellPlace place;
  std::vector<std::unique_ptr<ChoiceCaller>> callers{};  // none once it is measured
  std::unique_ptr<CellOperands> operands{};              // the last heat's, until it is measured
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_CELL_H_
