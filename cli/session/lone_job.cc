#include "cli/session/lone_job.h"

#include <unistd.h>

#include "cli/session/rank_session.h"
#include "fmt/format.h"

namespace cotune::cli {

Result<std::unique_ptr<Job>> JoinAlone(const ResolvedSettings& settings, const PluginFlags& plugins,
                                       const JobMemory& memory, Process& process,
                                       bool probes_all_backends) {
  JobOptions options = MakeJobOptions(settings, plugins, memory.kind, process);
  options.probes_all_backends = probes_all_backends;
  // Communicators of one rank take NCCL a second, and say little of those of more.
  options.makes_groups = probes_all_backends;
  options.context.launcher = "cotune";
  options.context.job_id = fmt::format("alone-{}", getpid());
  Result<std::unique_ptr<Job>> job = Job::Join(options);
  if (job) WarnOfSettings(**job, process);
  return job;
}

}  // namespace cotune::cli
