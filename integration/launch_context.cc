#include "integration/launch_context.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The variables of one launcher; empty: it has none for this.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  std::array<const char*, 2> job_id;  // joined when both are set; the first that is set otherwise
  // How often the launcher has started the ranks anew. A worker of an earlier attempt that is slow
  // to end must not meet those of this one.
  const char* attempt = "";
};

constexpr LauncherVariables kLaunchers[] = {
    {"cotune",
     "COTUNE_RANK",
     "COTUNE_WORLD_SIZE",
     "COTUNE_LOCAL_RANK",
     "COTUNE_LOCAL_SIZE",
     {"COTUNE_JOB_ID", ""}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT"},
     "TORCHELASTIC_RESTART_COUNT"},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID", ""}},
    {"slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     "SLURM_TASKS_PER_NODE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

const std::string* Find(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

Result<int> Number(const Environment& environment, const char* name) {
  const std::string& text = environment.at(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size();
  if (error != std::errc() || !whole || value < 0) {
    return Fail(ErrorCode::kUsage, fmt::format("{}={} is not a number", name, text), "environment",
                "", fmt::format("unset {} or start the program with its launcher", name));
  }
  return value;
}

std::string JobId(const Environment& environment, const LauncherVariables& names,
                  int64_t parent_pid) {
  std::string id;
  for (const char* name : names.job_id) {
    const std::string* value = *name == '\0' ? nullptr : Find(environment, name);
    if (value == nullptr) continue;
    if (!id.empty()) id += "-";
    id += *value;
  }
  if (id.empty()) id = fmt::format("{}", parent_pid);
  const std::string* attempt = *names.attempt == '\0' ? nullptr : Find(environment, names.attempt);
  if (attempt != nullptr) id += "-" + *attempt;
  return fmt::format("{}-{}", names.launcher, id);
}

// A number of the environment, or `fallback` where it is not set.
Result<int> NumberOr(const Environment& environment, const char* name, int fallback) {
  return Find(environment, name) == nullptr ? Result<int>(fallback) : Number(environment, name);
}

// How many ranks are on this host. Slurm lists the tasks of all nodes, "4(x2),3": the first number
// is this node's or another's, and either way differs from the whole where there are several.
Result<int> LocalSize(const Environment& environment, const LauncherVariables& names,
                      int world_size) {
  const std::string* text = Find(environment, names.local_size);
  if (text == nullptr || std::string_view(names.launcher) != "slurm") {
    return NumberOr(environment, names.local_size, world_size);
  }
  Environment first = {{names.local_size, text->substr(0, text->find_first_of("(,"))}};
  return Number(first, names.local_size);
}

// The context of one launcher; nullopt when its variables are not there.
Result<std::optional<LaunchContext>> ReadLauncher(const Environment& environment,
                                                  const LauncherVariables& names,
                                                  int64_t parent_pid) {
  const std::string* rank_text = Find(environment, names.rank);
  const std::string* size_text = Find(environment, names.world_size);
  const std::string launcher = names.launcher;
  // An allocation's shell has SLURM_NTASKS without being a task; WORLD_SIZE alone says nothing
  // either.
  if (rank_text == nullptr && (launcher == "slurm" || launcher == "torchrun")) return std::nullopt;
  if (rank_text == nullptr && size_text == nullptr) return std::nullopt;
  if (rank_text == nullptr || size_text == nullptr) {
    const char* present = rank_text == nullptr ? names.world_size : names.rank;
    const char* absent = rank_text == nullptr ? names.rank : names.world_size;
    return Fail(ErrorCode::kUsage, fmt::format("{} is set but {} is not", present, absent),
                "environment", "the variables of a launcher come together",
                fmt::format("unset {} or set {} too", present, absent));
  }
  const Result<int> rank = Number(environment, names.rank);
  const Result<int> world_size = Number(environment, names.world_size);
  COTUNE_RETURN_IF_ERROR(rank);
  COTUNE_RETURN_IF_ERROR(world_size);
  if (launcher == "slurm" && *world_size <= 1) return std::nullopt;
  if (*rank >= *world_size) {
    return Fail(ErrorCode::kUsage,
                fmt::format("{}={} is not a rank of {}={}", names.rank, *rank, names.world_size,
                            *world_size),
                "environment",
                fmt::format("the ranks of {} go from 0 to {}", launcher, *world_size - 1),
                fmt::format("correct {}, or unset both to start ranks with --ranks", names.rank));
  }
  const Result<int> local_rank = NumberOr(environment, names.local_rank, *rank);
  const Result<int> local_size = LocalSize(environment, names, *world_size);
  COTUNE_RETURN_IF_ERROR(local_rank);
  COTUNE_RETURN_IF_ERROR(local_size);
  LaunchContext context;
  context.launcher = launcher;
  context.rank = *rank;
  context.world_size = *world_size;
  context.local_rank = *local_rank;
  context.local_size = *local_size;
  context.job_id = JobId(environment, names, parent_pid);
  return context;
}

Status CheckFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Fail(ErrorCode::kEnvironment, "cannot make the folder of the control socket", folder,
                std::strerror(errno), "set XDG_RUNTIME_DIR to a folder of yours");
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 0077) != 0) {
    return Fail(ErrorCode::kEnvironment, "the folder of the control socket is not private", folder,
                "it belongs to somebody else or others may enter it",
                "remove it, or set XDG_RUNTIME_DIR to a folder of yours");
  }
  return {};
}

}  // namespace

Environment ProcessEnvironment() {
  Environment environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

Result<std::optional<LaunchContext>> DetectLaunchContext(const Environment& environment,
                                                         int64_t parent_pid) {
  std::optional<LaunchContext> first;
  const LauncherVariables* first_names = nullptr;
  for (const LauncherVariables& names : kLaunchers) {
    Result<std::optional<LaunchContext>> context = ReadLauncher(environment, names, parent_pid);
    if (!context) return context;
    if (!*context) continue;
    if (!first) {
      first = std::move(*context);
      first_names = &names;
      continue;
    }
    // cotune's own variables are for a job inside another one, so they may differ from those around
    // them.
    if (first->launcher == "cotune") continue;
    const LaunchContext& other = **context;
    if (other.rank == first->rank && other.world_size == first->world_size) continue;
    const bool rank_differs = other.rank != first->rank;
    return Fail(ErrorCode::kUsage,
                fmt::format("{}={} contradicts {}={}",
                            rank_differs ? first_names->rank : first_names->world_size,
                            rank_differs ? first->rank : first->world_size,
                            rank_differs ? names.rank : names.world_size,
                            rank_differs ? other.rank : other.world_size),
                "environment",
                fmt::format("both {} and {} seem to have started this process", first->launcher,
                            other.launcher),
                "unset the variables of the launcher that did not");
  }
  if (first) {
    if (const std::string* path = Find(environment, "COTUNE_SOCKET")) first->socket_path = *path;
  }
  return first;
}

std::string LauncherVariablesText(const std::string& launcher) {
  for (const LauncherVariables& names : kLaunchers) {
    if (launcher == names.launcher) return fmt::format("{} and {}", names.rank, names.world_size);
  }
  return "the environment";
}

std::string LeftOverText(const LaunchContext& context) {
  if (context.launcher.empty() || context.launcher == "none") return "";
  if (context.launcher == "options") {
    return fmt::format("this process is rank {} of {} by the options of its group", context.rank,
                       context.world_size);
  }
  return fmt::format("this process is rank {} of {} by {}: without a launcher unset them",
                     context.rank, context.world_size, LauncherVariablesText(context.launcher));
}

Result<std::string> DefaultSocketPath(const Environment& environment, const std::string& job_id) {
  const std::string* runtime = Find(environment, "XDG_RUNTIME_DIR");
  const std::string folder =
      runtime != nullptr ? *runtime + "/cotune" : fmt::format("/tmp/cotune-{}", geteuid());
  COTUNE_RETURN_IF_ERROR(CheckFolder(folder));
  // Job ids of launchers are long and may hold slashes: a digest is neither.
  const std::string path = fmt::format("{}/{}.sock", folder, Sha256Hex(job_id).substr(0, 16));
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Fail(
        ErrorCode::kEnvironment, "the path of the control socket is too long", path,
        fmt::format("{} characters, {} fit", path.size(), sizeof(sockaddr_un::sun_path) - 1),
        "set XDG_RUNTIME_DIR to a shorter path");
  }
  return path;
}

}  // namespace cotune
