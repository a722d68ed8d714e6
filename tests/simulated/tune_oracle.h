// What every simulated tune must show, whatever happens in it.
#ifndef COTUNE_TESTS_SIMULATED_TUNE_ORACLE_H_
#define COTUNE_TESTS_SIMULATED_TUNE_ORACLE_H_

#include <string>

#include "tests/simulated/tune_run.h"

namespace cotune {

// What is wrong with the ends of the ranks; "" when nothing is.
std::string CheckTune(const TuneSchedule& schedule, const TuneRun& run);

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_TUNE_ORACLE_H_
