// How long the stages of a tune took, as text.
#ifndef COTUNE_CLI_OUTPUT_TIMES_TEXT_H_
#define COTUNE_CLI_OUTPUT_TIMES_TEXT_H_

#include <string>

#include "core/scheduler/tune_times.h"

namespace cotune::cli {

// "times: choices 0.4 ms, compile 12.0 ms, ...", then a line a node, each with a line end.
std::string TimesText(const TuneTimes& times);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_TIMES_TEXT_H_
