// Which memory a command works on: the host's, or that of the GPUs which this machine has.
#ifndef COTUNE_CLI_SESSION_JOB_MEMORY_H_
#define COTUNE_CLI_SESSION_JOB_MEMORY_H_

#include <string>

#include "cli/input/command_line.h"
#include "cli/session/process.h"
#include "core/base/status.h"
#include "core/problem/problem.h"
#include "integration/settings/settings.h"

namespace cotune::cli {

struct JobMemory {
  MemoryKind kind = MemoryKind::kHost;
  int gpus = 0;  // that this process sees; kCuda only
};

// By the setting `memory`; auto: CUDA where there is a GPU and a plugin that works on one. kUsage:
// a value that is none of the three; kEnvironment: "cuda" on a machine without a GPU.
Result<JobMemory> ChooseMemory(const ResolvedSettings& settings, const PluginFlags& plugins,
                               const Process& process);

// Ranks to start when the user names no number: one for each GPU, or on host memory one for each
// processor that this process may use, 2 at least and 8 at most.
int DefaultRanks(const JobMemory& memory);

// A note for the user if so many ranks of this host have to share its processors; "" if not.
std::string SharedProcessorsText(const JobMemory& memory, int local_ranks);

// kUsage when a host has more ranks than GPUs.
Status CheckRanks(const JobMemory& memory, int local_ranks);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_JOB_MEMORY_H_
