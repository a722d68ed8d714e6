#include "cli/lone_job.h"

#include <unistd.h>

#include "cli/rank_session.h"
#include "fmt/format.h"

namespace cotune::cli {

Result<std::unique_ptr<Job>> JoinAlone(const ResolvedSettings& settings, const PluginFlags& plugins,
                                       const JobMemory& memory, const Process& process,
                                       bool probes_all_backends) {
  JobOptions options = MakeJobOptions(settings, plugins, memory.kind, process);
  options.probes_all_backends = probes_all_backends;
  options.context.launcher = "cotune";
  options.context.job_id = fmt::format("alone-{}", getpid());
  return Job::Join(options);
}

}  // namespace cotune::cli
