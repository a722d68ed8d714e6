// A job of just this process: what commands ask about machine and plugins without starting ranks.
#ifndef COTUNE_CLI_SESSION_LONE_JOB_H_
#define COTUNE_CLI_SESSION_LONE_JOB_H_

#include <memory>

#include "cli/input/command_line.h"
#include "cli/session/job_memory.h"
#include "cli/session/process.h"
#include "integration/job.h"
#include "integration/settings/settings.h"

namespace cotune::cli {

// Loads the plugins and reads the machine, and warns of settings that nobody could check.
// Errors as Job::Join.
Result<std::unique_ptr<Job>> JoinAlone(const ResolvedSettings& settings, const PluginFlags& plugins,
                                       const JobMemory& memory, Process& process,
                                       JobPurpose purpose = JobPurpose::kIdentify);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_LONE_JOB_H_
