// The checks of `cotune doctor`: each looks at one thing and adds a finding.
#ifndef COTUNE_CLI_COMMANDS_DOCTOR_H_
#define COTUNE_CLI_COMMANDS_DOCTOR_H_

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/output/reports.h"
#include "integration/settings/settings.h"

namespace cotune::cli {

// The input that all checks share, and the findings that they write.
struct Checkup {
  Process& process;
  const ResolvedSettings& settings;
  int ranks = 0;  // that a tune here would have
  int gpus = 0;   // that this process sees
  std::vector<Finding> findings;
  bool has_ucx = false;  // the backend ucx has its library; known after CheckTuning

  // Each adds one finding. `details` are lines of their own below it.
  void Ok(std::string_view subject, std::string text, std::vector<std::string> details = {});
  void Note(std::string_view subject, std::string text, std::string next_step,
            std::vector<std::string> details = {});
  void Problem(std::string_view subject, std::string text, std::string next_step,
               std::vector<std::string> details = {});
};

// Driver, GPUs, peer access, NVLink; sets `gpus`.
void CheckGpus(Checkup& checkup);
// NCCL, NVRTC and UCX: which copy is found, its version, and where it was looked for.
void CheckLibraries(Checkup& checkup);
// /dev/shm, limits of the process, cores against ranks.
void CheckHost(Checkup& checkup);
// Reads between ranks, tried; the owner of the root folder.
void CheckProcesses(Checkup& checkup);
// The launcher, plugins with what they offer, and the tuned database.
void CheckTuning(const DoctorFlags& flags, Checkup& checkup);

// ---- What these share ----

// The file that this process has mapped a library from whose name begins with `soname`; "" when it
// has not.
std::string MappedFile(std::string_view soname);
// What to do when /dev/shm has no room for a tune by the ucx backend with this many ranks; "" when
// it has, or nobody knows.
std::string UcxSharedMemoryStep(int ranks);
// The first line of a file, without the line end. kEnvironment with the reason.
Result<std::string> FirstLine(const std::string& path);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_COMMANDS_DOCTOR_H_
