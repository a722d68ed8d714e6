#include "plugins/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "gpu/driver/library_search.h"

namespace cotune::nccl {
namespace {

using sdk::Fail;
using sdk::Result;

constexpr char kSoname[] = "libnccl.so.2";
constexpr char kVariable[] = "COTUNE_NCCL_LIBRARY";
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;

using GetVersion = NcclResult (*)(int* version);

std::string PathOf(void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The file of the copy that the process has already; "" when it has none.
std::string LoadedPath() {
  void* library = dlopen(kSoname, kFlags | RTLD_NOLOAD);
  if (library == nullptr) return "";
  void* symbol = dlsym(library, "ncclGetVersion");
  std::string path = symbol == nullptr ? kSoname : PathOf(symbol);
  dlclose(library);  // the reference that this call took
  return path;
}

bool IsSameFile(const std::string& one, const std::string& other) {
  std::error_code error;
  return one == other || std::filesystem::equivalent(one, other, error);
}

// The library that the user named, and how.
struct LibraryRequest {
  std::string path;
  std::string how;
};

LibraryRequest RequestOf(const std::string& named,
                         const std::map<std::string, std::string>& environment) {
  if (!named.empty()) return {named, "the setting nccl.library"};
  const auto found = environment.find(kVariable);
  if (found == environment.end() || found->second.empty()) return {};
  return {found->second, kVariable};
}

}  // namespace

std::string VersionText(int version) {
  // Up to 2.8 the code had one digit for the minor version.
  if (version < 10000)
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<NcclLibrary> NcclLibrary::Open(const std::string& named,
                                      const std::map<std::string, std::string>& environment) {
  const LibraryRequest request = RequestOf(named, environment);
  NcclLibrary nccl;
  std::string not_found;
  if (const std::string loaded = LoadedPath(); !loaded.empty()) {
    if (!request.path.empty() && !IsSameFile(request.path, loaded)) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("{} names {}, but the process has loaded NCCL from {}; two copies do "
                              "not work together: unset it, or name the loaded one",
                              request.how, request.path, loaded));
    }
    COTUNE_RETURN_IF_ERROR(nccl.Load(loaded, &not_found));
    if (not_found.empty()) return nccl;
  }
  for (const std::string& candidate :
       gpu::LibraryCandidates({request.path, {kSoname}}, environment)) {
    std::string why;
    COTUNE_RETURN_IF_ERROR(nccl.Load(candidate, &why));
    if (why.empty()) return nccl;
    not_found += (not_found.empty() ? "" : "; ") + why;
  }
  if (!request.path.empty()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} names no NCCL that can be loaded: {}", request.how, not_found));
  }
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("no NCCL: {}; install nvidia-nccl-cu13, or name it by the setting "
                          "nccl.library or {}",
                          not_found, kVariable));
}

Result<void> NcclLibrary::Load(const std::string& candidate, std::string* not_found) {
  void* library = dlopen(candidate.c_str(), kFlags);
  if (library == nullptr) {
    *not_found = dlerror();
    return {};
  }
  auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != kNcclSuccess) {
    dlclose(library);
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} is not NCCL: it does not tell its version", candidate));
  }
  path_ = PathOf(reinterpret_cast<void*>(get_version));
  version_ = version;
  if (version < kOldestVersion || version / 10000 != kOldestVersion / 10000) {
    dlclose(library);
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("NCCL {} at {}: 2.19 or newer of major version 2 is needed; upgrade "
                            "it, or name another by the setting nccl.library",
                            VersionText(version), path_));
  }
  auto complete = FindFunctions(library);
  if (!complete) {
    dlclose(library);
    return complete;
  }
  // From here on for good: NCCL keeps threads of its own.
  dlopen(candidate.c_str(), kFlags | RTLD_NODELETE);
  return {};
}

Result<void> NcclLibrary::FindFunctions(void* library) {
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
  find(functions_.GetErrorString, "ncclGetErrorString");
  find(functions_.GetLastError, "ncclGetLastError");
#define COTUNE_FIND(member, symbol, arguments) find(functions_.member, #symbol);
  COTUNE_NCCL_FUNCTIONS(COTUNE_FIND)
  if (version_ >= kOldestWindowVersion) {
    COTUNE_NCCL_WINDOW_FUNCTIONS(COTUNE_FIND)
  }
#undef COTUNE_FIND
#define COTUNE_FIND_OPTIONAL(member, symbol, arguments) \
  functions_.member = reinterpret_cast<decltype(functions_.member)>(dlsym(library, #symbol));
  COTUNE_NCCL_LATE_FUNCTIONS(COTUNE_FIND_OPTIONAL)
#undef COTUNE_FIND_OPTIONAL
  if (missing == nullptr) return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("{} says that it is NCCL {} but lacks {}: a damaged file, or one that "
                          "was built from parts of two versions; install it anew",
                          path_, VersionText(version_), missing));
}

Result<void> NcclLibrary::Check(NcclResult result, const char* call, NcclComm comm) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return {};
  cotune_status_t status = COTUNE_INTERNAL;
  if (result == kNcclRemoteError) status = COTUNE_PEER_FAILED;
  if (result == kNcclInvalidArgument || result == kNcclInvalidUsage)
    status = COTUNE_INVALID_ARGUMENT;
  const char* text = functions_.GetErrorString(result);
  const char* words = functions_.GetLastError(comm);
  std::string last = words == nullptr ? "" : words;
  for (char& c : last) {
    if (c == '\n') c = ' ';
  }
  return Fail(status,
              fmt::format("{} of NCCL {} failed: {}{}{}", call, VersionText(version_),
                          text == nullptr ? "error" : text, last.empty() ? "" : ", ", last),
              result);
}

}  // namespace cotune::nccl
