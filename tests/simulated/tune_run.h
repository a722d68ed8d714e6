// Runs a schedule: the real scheduler on every rank of a simulated job.
#ifndef COTUNE_TESTS_SIMULATED_TUNE_RUN_H_
#define COTUNE_TESTS_SIMULATED_TUNE_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/scheduler/scheduler.h"
#include "tests/simulated/tune_schedule.h"

namespace cotune {

struct TuneRun {
  bool all_ended = false;  // false: a rank waits for ever
  // By rank; nullopt: it has crashed before.
  std::vector<std::optional<Result<TuneOutcome>>> outcomes;
  int broken_ties = 0;   // cells of rank 0 in which choices had warm times
  int pruned_cells = 0;  // cells of rank 0 in which choices did not race for their neighbours
  // Where the schedule keeps a trace.
  std::vector<std::string> calls;
  std::vector<std::string> network;
};

TuneRun RunTune(const TuneSchedule& schedule);

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_TUNE_RUN_H_
