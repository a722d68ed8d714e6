// Libraries that backends open at run time.
#include <dlfcn.h>

#include <utility>

#include "cli/commands/doctor.h"
#include "fmt/format.h"
#include "gpu/driver/library_search.h"

namespace cotune::cli {
namespace {

struct WantedLibrary {
  const char* subject;
  std::vector<std::string> sonames;
  std::string named;        // by the user; "": nobody named one
  std::string how_to_name;  // for the next step
  const char* package;
  const char* purpose;
  bool needs_gpus = true;
  std::vector<std::string> python_folders = {};  // as in gpu::LibraryQuery
};

// The version that a library reports; "" when it is not the library that was looked for.
std::string NcclVersion(void* library) {
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "";
  // From 2.9 on: 10000 for the major version.
  return version < 10000
             ? fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
             : fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string UcxVersion(void* library) {
  const auto get = reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(
      dlsym(library, "ucp_get_version"));
  unsigned version[3] = {};
  if (get == nullptr) return "";
  get(&version[0], &version[1], &version[2]);
  return fmt::format("{}.{}.{}", version[0], version[1], version[2]);
}

std::string NvrtcVersion(void* library) {
  const auto get = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "nvrtcVersion"));
  int major = 0;
  int minor = 0;
  return get == nullptr || get(&major, &minor) != 0 ? "" : fmt::format("{}.{}", major, minor);
}

void CheckLibrary(const WantedLibrary& wanted, std::string (*version_of)(void*), Checkup& checkup) {
  std::vector<std::string> searched;
  for (const std::string& candidate : gpu::LibraryCandidates(
           {wanted.named, wanted.sonames, wanted.python_folders}, gpu::OwnEnvironment())) {
    void* const library = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
      searched.push_back(fmt::format("not usable: {}", dlerror()));
      continue;
    }
    const std::string version = version_of(library);
    if (version.empty()) {
      searched.push_back(fmt::format("not usable: {} does not tell its version", candidate));
      continue;
    }
    const std::string soname = candidate.substr(candidate.rfind('/') + 1);
    const std::string path = MappedFile(soname.substr(0, soname.find(".so") + 3));
    checkup.Ok(wanted.subject, fmt::format("{} from {}", version, path.empty() ? candidate : path),
               std::move(searched));
    return;
  }
  const std::string next_step =
      fmt::format("install {}, or name the file by {}", wanted.package, wanted.how_to_name);
  if (!wanted.named.empty()) {
    checkup.Problem(wanted.subject, fmt::format("{} cannot be used", wanted.named),
                    "name another file by " + wanted.how_to_name, std::move(searched));
    return;
  }
  if (checkup.gpus == 0 && wanted.needs_gpus) {
    checkup.Note(wanted.subject, "not found, and not needed without GPUs",
                 "nothing here; on a machine with GPUs " + next_step, std::move(searched));
    return;
  }
  checkup.Note(wanted.subject, fmt::format("not found; {} offers nothing", wanted.purpose),
               next_step, std::move(searched));
}

std::string BackendSetting(const Checkup& checkup, const char* name) {
  const auto found = checkup.settings.backend_values.find(name);
  return found == checkup.settings.backend_values.end() ? "" : found->second;
}

// The file that the user named by the setting, or else by the variable; "" for none.
std::string NamedLibrary(const Checkup& checkup, const char* setting, const char* variable) {
  const std::string named = BackendSetting(checkup, setting);
  const auto found = checkup.process.environment.find(variable);
  return !named.empty() || found == checkup.process.environment.end() ? named : found->second;
}

}  // namespace

void CheckLibraries(Checkup& checkup) {
  CheckLibrary({"NCCL",
                {"libnccl.so.2"},
                NamedLibrary(checkup, "nccl.library", "COTUNE_NCCL_LIBRARY"),
                "the setting nccl.library or COTUNE_NCCL_LIBRARY",
                "nvidia-nccl-cu13 or nvidia-nccl-cu12",
                "the backend nccl"},
               NcclVersion, checkup);
  CheckLibrary({"NVRTC",
                {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                BackendSetting(checkup, "cuda.nvrtc_library"),
                "the setting cuda.nvrtc_library",
                "nvidia-cuda-nvrtc or nvidia-cuda-nvrtc-cu12",
                "the backend cuda"},
               NvrtcVersion, checkup);
  CheckLibrary({"UCX",
                {"libucp.so.0"},
                NamedLibrary(checkup, "ucx.library", "COTUNE_UCX_LIBRARY"),
                "the setting ucx.library or COTUNE_UCX_LIBRARY",
                "libucx0 or libucx-cu13",
                "the backend ucx",
                false,
                {"libucx/lib"}},
               UcxVersion, checkup);
}

}  // namespace cotune::cli
