// One cell on ranks that are threads, ready for a stage of its benchmark: for tests of the stages.
#ifndef COTUNE_CORE_TESTING_CELL_ON_RANKS_H_
#define COTUNE_CORE_TESTING_CELL_ON_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/preparation.h"
#include "core/benchmark/racing_choice.h"
#include "core/choice/choice_caller.h"
#include "core/problem/problem.h"
#include "core/problem/tuning_settings.h"
#include "core/selection/verdict.h"
#include "core/testing/scripted_ranks.h"

namespace cotune {

// A choice that is named and costs so many ns a call.
ScriptedChoice ChoiceOfCost(std::string name, int64_t cost_ns);

// A collective of f32.
struct CellScript {
  int world_size = 2;
  Collective collective = Collective::kAllReduce;
  Reduction reduction = Reduction::kSum;
  bool in_place = false;
  uint64_t count = 256;
  std::vector<ScriptedChoice> choices;
  std::function<DeviceScript(int rank)> device;
  std::function<bool(int rank)> stop_requested;
  TuningSettings settings;
  StartMode start_mode = StartMode::kBarrier;
};

// The parts of the cell on one rank. The stages behind preparation find it prepared.
struct CellOnRank {
  const BenchmarkParts& parts;
  const Program& program;
  const Problem& problem;
  std::vector<RacingChoice>& choices;
  CellSteps& steps;
  BackendForTest& backend;
};
void RunOnRanks(const CellScript& script, const std::function<void(CellOnRank&)>& body);

struct PreparedCellOnRank : CellOnRank {
  PreparedCell& prepared;
  ChoiceRuns& runs;
  ChoiceRemoval& removal;
};
void RunOnPreparedRanks(const CellScript& script,
                        const std::function<void(PreparedCellOnRank&)>& body);

// The cell as its race leaves it when each choice takes the same time in eight rounds.
CellResult RacedCell(const PreparedCellOnRank& cell, const std::vector<int64_t>& times_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_CELL_ON_RANKS_H_
