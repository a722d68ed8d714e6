// NVIDIA's libraries that backends open at run time.
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

std::string NvrtcVersion(void* library) {
  const auto get = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "nvrtcVersion"));
  int major = 0;
  int minor = 0;
  return get == nullptr || get(&major, &minor) != 0 ? "" : fmt::format("{}.{}", major, minor);
}

void CheckLibrary(const WantedLibrary& wanted, std::string (*version_of)(void*), Checkup& checkup) {
  std::vector<std::string> searched;
  for (const std::string& candidate :
       gpu::LibraryCandidates({wanted.named, wanted.sonames}, gpu::OwnEnvironment())) {
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
  checkup.Note(wanted.subject,
               fmt::format("not found{}", checkup.gpus == 0
                                              ? ", and not needed without GPUs"
                                              : fmt::format("; {} offers nothing", wanted.purpose)),
               next_step, std::move(searched));
}

std::string BackendSetting(const Checkup& checkup, const char* name) {
  const auto found = checkup.settings.backend_values.find(name);
  return found == checkup.settings.backend_values.end() ? "" : found->second;
}

}  // namespace

void CheckLibraries(Checkup& checkup) {
  std::string nccl = BackendSetting(checkup, "nccl.library");
  const auto variable = checkup.process.environment.find("COTUNE_NCCL_LIBRARY");
  if (nccl.empty() && variable != checkup.process.environment.end()) nccl = variable->second;
  CheckLibrary({"NCCL",
                {"libnccl.so.2"},
                nccl,
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
}

}  // namespace cotune::cli
