#include "plugins/ucx/ucx_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <type_traits>

#include "gpu/driver/library_search.h"

namespace cotune::ucx {
namespace {

using sdk::Fail;
using sdk::Result;

constexpr char kSoname[] = "libucp.so.0";
constexpr char kServicesSoname[] = "libucs.so.0";
constexpr char kVariable[] = "COTUNE_UCX_LIBRARY";
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
constexpr unsigned kMajor = 1;
constexpr unsigned kOldestMinor = 13;

std::string PathOf(void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The file of the copy that the process has already; "" when it has none.
std::string LoadedPath() {
  void* library = dlopen(kSoname, kFlags | RTLD_NOLOAD);
  if (library == nullptr) return "";
  void* symbol = dlsym(library, "ucp_get_version");
  std::string path = symbol == nullptr ? kSoname : PathOf(symbol);
  dlclose(library);  // the reference that this call took
  return path;
}

std::filesystem::path FolderOf(const std::string& file) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(file, error);
  return (error ? std::filesystem::path(file) : real).parent_path();
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
  if (!named.empty()) return {named, "the setting ucx.library"};
  const auto found = environment.find(kVariable);
  if (found == environment.end() || found->second.empty()) return {};
  return {found->second, kVariable};
}

const char* NameOf(ucs_log_level_t level) {
  switch (level) {
    case UCS_LOG_LEVEL_FATAL:
      return "FATAL";
    case UCS_LOG_LEVEL_ERROR:
      return "ERROR";
    case UCS_LOG_LEVEL_WARN:
      return "WARN ";
    case UCS_LOG_LEVEL_DIAG:
      return "DIAG ";
    case UCS_LOG_LEVEL_INFO:
      return "INFO ";
    case UCS_LOG_LEVEL_DEBUG:
      return "DEBUG";
    case UCS_LOG_LEVEL_PRINT:
      return "PRINT";
    default:
      return "TRACE";
  }
}

// UCX calls it from several threads. It writes a message at once, so that lines of several ranks
// stay whole.
ucs_log_func_rc_t WriteToStandardError(const char* file, unsigned line, const char* /*function*/,
                                       ucs_log_level_t level,
                                       const ucs_log_component_config_t* /*component*/,
                                       const char* format, va_list arguments) {
  const int saved_errno = errno;
  // As long as a line of UCX's own log is.
  std::array<char, 1024> message{};
  vsnprintf(message.data(), message.size(), format, arguments);
  const std::string_view path = file == nullptr ? "" : file;
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  std::array<char, 2 * message.size()> text{};
  char* end = text.data();
  const auto append = [&](auto what, auto... values) {
    const auto room = static_cast<size_t>(text.data() + text.size() - end);
    end = fmt::format_to_n(end, room, what, values...).out;
  };
  std::string_view rest = message.data();
  while (!rest.empty()) {  // a message may have several lines
    const std::string_view first = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(first.size() + 1, rest.size()));
    append(FMT_STRING("ucx: {} {}"), NameOf(level), first);
    if (rest.empty()) append(FMT_STRING(" ({}:{})"), name, line);
    append(FMT_STRING("\n"));
  }
  // There is nowhere to report that standard error is closed.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text.data(), static_cast<size_t>(end - text.data()));
  errno = saved_errno;
  return UCS_LOG_FUNC_RC_STOP;
}

// UCX keeps handlers in a list without a lock, and calls the newest one first. It keeps this one
// for good: plugins are never unloaded.
void SendLogToStandardError(const UcxFunctions& ucx,
                            const std::map<std::string, std::string>& environment) {
  const auto file = environment.find("UCX_LOG_FILE");
  const bool has_file = file != environment.end() && !file->second.empty();
  if (ucx.ucs_log_push_handler == nullptr || has_file) return;
  static std::once_flag once;
  std::call_once(once, ucx.ucs_log_push_handler, WriteToStandardError);
}

}  // namespace

std::string UcxVersion::Text() const { return fmt::format("{}.{}.{}", major, minor, release); }

Result<UcxLibrary> UcxLibrary::Open(const std::string& named,
                                    const std::map<std::string, std::string>& environment) {
  const LibraryRequest request = RequestOf(named, environment);
  UcxLibrary ucx;
  std::string not_found;
  if (const std::string loaded = LoadedPath(); !loaded.empty()) {
    if (!request.path.empty() && !IsSameFile(request.path, loaded)) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("{} names {}, but the process has loaded UCX from {}; two copies do "
                              "not work together: unset it, or name the loaded one",
                              request.how, request.path, loaded));
    }
    COTUNE_RETURN_IF_ERROR(ucx.Load(loaded, &not_found));
    if (not_found.empty()) return ucx;
  }
  for (const std::string& candidate : gpu::LibraryCandidates(
           {.named = request.path, .sonames = {kSoname}, .python_folders = {"libucx/lib"}},
           environment)) {
    std::string why;
    COTUNE_RETURN_IF_ERROR(ucx.Load(candidate, &why));
    if (why.empty()) {
      SendLogToStandardError(ucx.functions_, environment);
      return ucx;
    }
    not_found += (not_found.empty() ? "" : "; ") + why;
  }
  if (!request.path.empty()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} names no UCX that can be loaded: {}", request.how, not_found));
  }
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("no UCX: {}; install libucx0 or libucx-cu13, or name libucp.so.0 by the "
                          "setting ucx.library or {}",
                          not_found, kVariable));
}

Result<void> UcxLibrary::Load(const std::string& candidate, std::string* not_found) {
  void* ucp = dlopen(candidate.c_str(), kFlags);
  if (ucp == nullptr) {
    *not_found = dlerror();
    return {};
  }
  functions_.ucp_get_version =
      reinterpret_cast<decltype(&::ucp_get_version)>(dlsym(ucp, "ucp_get_version"));
  if (functions_.ucp_get_version == nullptr) {
    dlclose(ucp);
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} is not UCX: it does not tell its version", candidate));
  }
  path_ = PathOf(reinterpret_cast<void*>(functions_.ucp_get_version));
  auto usable = CheckVersion();
  if (usable) usable = FindFunctions(ucp);
  if (!usable) {
    dlclose(ucp);
    return usable;
  }
  // From here on for good: UCX keeps a thread and hooks of its own.
  dlopen(candidate.c_str(), kFlags | RTLD_NODELETE);
  // A backend installs no handlers of signals; UCX does when it is loaded.
  functions_.ucs_debug_disable_signals();
  return {};
}

Result<void> UcxLibrary::CheckVersion() {
  functions_.ucp_get_version(&version_.major, &version_.minor, &version_.release);
  if (version_.major == kMajor && version_.minor >= kOldestMinor) return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("UCX {} at {}: {}.{} or newer of major version {} is needed; upgrade it, "
                          "or name another by the setting ucx.library",
                          version_.Text(), path_, kMajor, kOldestMinor, kMajor));
}

Result<void> UcxLibrary::FindFunctions(void* ucp) {
  const char* missing = nullptr;
  const auto find = [&](auto& function, void* library, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        library == nullptr ? nullptr : dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
#define COTUNE_FIND(name) find(functions_.name, ucp, #name);
  COTUNE_UCP_FUNCTIONS(COTUNE_FIND)
#undef COTUNE_FIND
  // It came with libucp, or was in the process before.
  void* ucs = dlopen(kServicesSoname, kFlags | RTLD_NOLOAD);
#define COTUNE_FIND(name) find(functions_.name, ucs, #name);
  COTUNE_UCS_FUNCTIONS(COTUNE_FIND)
#undef COTUNE_FIND
  if (ucs != nullptr) {
    functions_.ucs_log_push_handler = reinterpret_cast<decltype(functions_.ucs_log_push_handler)>(
        dlsym(ucs, "ucs_log_push_handler"));
    dlclose(ucs);  // the reference that this call took
  }
  if (missing != nullptr) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} says that it is UCX {} but lacks {}: a damaged file, or one that "
                            "was built from parts of two versions; install it anew",
                            path_, version_.Text(), missing));
  }
  const std::string services = PathOf(reinterpret_cast<void*>(functions_.ucs_status_string));
  if (FolderOf(services) == FolderOf(path_)) return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("UCX is mixed: libucp is {} and libucs is {}; two copies do not work "
                          "together: name the one that the process has by the setting ucx.library",
                          path_, services));
}

std::string UcxLibrary::StatusText(ucs_status_t status) const {
  return functions_.ucs_status_string(status);
}

}  // namespace cotune::ucx
