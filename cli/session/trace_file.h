// The file of --trace.
#ifndef COTUNE_CLI_SESSION_TRACE_FILE_H_
#define COTUNE_CLI_SESSION_TRACE_FILE_H_

#include <string>
#include <vector>

#include "cli/output/console.h"
#include "core/base/status.h"
#include "core/ranks/step_messages.h"
#include "integration/event_recorder.h"
#include "integration/job.h"

namespace cotune::cli {

// kUsage where a trace could not be written to this path, as far as that can be told without
// writing: asked before the ranks start, so that no long tune ends without its trace. "": no trace.
Status CheckTraceFile(const std::string& path);

// The traces of all ranks, by rank. Collective. Where they cannot be gathered, rank 0 warns of it,
// and there are none: the results of the tune do not depend on them.
std::vector<TraceOfRank> GatherTracesOrWarn(Job& job, EventRecorder& recorder, Console& console);

// Writes them; warns where that fails, and of what was not kept.
void WriteTraceFile(const std::string& path, const std::vector<TraceOfRank>& traces,
                    Console& console);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_TRACE_FILE_H_
