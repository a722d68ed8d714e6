// The trace of a tune in the format of Chrome's trace viewer.
#ifndef COTUNE_CLI_OUTPUT_CHROME_TRACE_H_
#define COTUNE_CLI_OUTPUT_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "core/ranks/step_messages.h"

namespace cotune::cli {

// A JSON document: a process for each rank, a thread for each of its lanes, times in microseconds
// from the first event of all ranks. traces: by rank, on one clock.
std::string ChromeTrace(const std::vector<TraceOfRank>& traces);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_CHROME_TRACE_H_
