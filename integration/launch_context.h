// Finds the rank of this process in its job, under each launcher that cotune recognises.
#ifndef COTUNE_INTEGRATION_LAUNCH_CONTEXT_H_
#define COTUNE_INTEGRATION_LAUNCH_CONTEXT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/status.h"

namespace cotune {

// Environment variables by name; an argument, so that detection is a pure function.
using Environment = std::map<std::string, std::string>;
// The environment of this process.
Environment ProcessEnvironment();

// A rank of a job.
struct LaunchContext {
  std::string launcher;  // "cotune", "torchrun", "openmpi", "hydra", "slurm"
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 0;       // ranks on this host as the launcher counts them; 0: it does not say
  std::string job_id;       // equal on all ranks, different for jobs that run at the same time
  std::string socket_path;  // of the control channel; empty: DefaultSocketPath(job_id)
};

// The first complete set of variables, in the order cotune (COTUNE_RANK, COTUNE_WORLD_SIZE,
// COTUNE_JOB_ID), torchrun (RANK, WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_RANK, _SIZE), hydra
// (PMI_RANK, PMI_SIZE), Slurm (SLURM_PROCID, SLURM_NTASKS > 1); nullopt when there is none. kUsage
// names both variables and their values when two sets contradict, and the variable when a set is
// incomplete or no number. `parent_pid` serves as job id where a launcher gives none.
Result<std::optional<LaunchContext>> DetectLaunchContext(const Environment& environment,
                                                         int64_t parent_pid);

// The variables by which a launcher names a rank: "RANK and WORLD_SIZE" of torchrun.
std::string LauncherVariablesText(const std::string& launcher);

// Says what made this process a rank, and how to undo it: variables of a launcher may be left over
// from another program. "this process is rank 1 of 3 by RANK and WORLD_SIZE: without a launcher
// unset them". "" if nothing did.
std::string LeftOverText(const LaunchContext& context);

// PATH/JOB.sock in $XDG_RUNTIME_DIR/cotune or /tmp/cotune-UID. Makes the folder (0700) when it is
// missing; kEnvironment when it belongs to somebody else or others may write to it.
Result<std::string> DefaultSocketPath(const Environment& environment, const std::string& job_id);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_LAUNCH_CONTEXT_H_
