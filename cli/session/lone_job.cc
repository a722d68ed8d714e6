#include "cli/session/lone_job.h"

#include <unistd.h>

#include "cli/session/rank_session.h"
#include "fmt/format.h"

namespace cotune::cli {

Result<std::unique_ptr<Job>> JoinAlone(const ResolvedSettings& settings, const PluginFlags& plugins,
                                       const JobMemory& memory, Process& process,
                                       JobPurpose purpose) {
  JobOptions options = MakeJobOptions(settings, plugins, memory.kind, process);
  // A job that is only identified makes no groups: communicators of one rank take NCCL a second,
  // and say little of those of more.
  options.purpose = purpose;
  options.context.launcher = "cotune";
  options.context.job_id = fmt::format("alone-{}", getpid());
  Result<std::unique_ptr<Job>> job = Job::Join(options);
  if (!job && job.error().where.empty() && job.error().what.starts_with("unknown backend")) {
    job.error().where = "--backend";
  }
  if (job) WarnOfSettings(**job, process);
  return job;
}

}  // namespace cotune::cli
