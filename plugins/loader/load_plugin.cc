#include "plugins/loader/load_plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/file_trust.h"
#include "fmt/format.h"
#include "plugins/loader/backend_adapter.h"

namespace cotune {
namespace {

tl::unexpected<Error> Refused(const std::string& path, const char* step, std::string cause,
                              std::string next_step) {
  return Fail(ErrorCode::kPluginRefused, fmt::format("plugin refused at step '{}'", step), path,
              std::move(cause), std::move(next_step));
}

// Closes a descriptor on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Whoever may write a plugin, or exchange it in its folder, runs code as this user.
Status CheckFolders(const std::string& path, const std::string& real_path) {
  std::string mistake = FolderPathTrustMistake(std::filesystem::path(real_path).parent_path());
  if (mistake.empty()) return {};
  return Refused(path, "permissions", std::move(mistake),
                 "move the plugin to a folder that only you can write to");
}

// Opens the file and checks what was opened. `path` is what the user wrote.
Result<Descriptor> OpenChecked(const std::string& path, const std::string& real_path) {
  constexpr const char* kCheckPath = "check the path and its permissions";
  // Without O_NONBLOCK a pipe would be waited for.
  Descriptor file(open(real_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return Refused(path, "open", std::strerror(errno), kCheckPath);
  }
  if (!S_ISREG(info.st_mode)) {
    return Refused(path, "open", "it is not a regular file", "give the path of a shared library");
  }
  if ((info.st_mode & (S_IRUSR | S_IRGRP | S_IROTH)) == 0) {  // root opens it all the same
    return Refused(path, "open", "nobody may read it", kCheckPath);
  }
  if (std::string mistake = FileTrustMistake(info); !mistake.empty()) {
    return Refused(path, "permissions", std::move(mistake),
                   "chmod go-w the plugin, and let it belong to you or to root");
  }
  return file;
}

// Runs a call that is code of the plugin. Nothing can abort it.
template <typename Call>
auto RunWatched(CallWatchdog* watchdog, const CallSubject& subject, const char* function,
                const Call& call) {
  CallSlot slot(watchdog, nullptr);
  const int64_t deadline_ns = watchdog == nullptr ? INT64_MAX : watchdog->DeadlineOfCall();
  const RunningCall running(slot, subject, function, deadline_ns);
  return call();
}

std::string OtherMajor(void* library) {
  for (int major = 2; major <= 9; ++major) {
    if (dlsym(library, fmt::format("cotune_backend_query_v{}", major).c_str()) != nullptr) {
      return fmt::format("it speaks ABI version {}, this cotune speaks version {}", major,
                         COTUNE_ABI_MAJOR);
    }
  }
  return fmt::format("it does not export {}", COTUNE_BACKEND_QUERY_SYMBOL);
}

// dlopen, and that it opened the file that was checked. By path and not by descriptor, because
// $ORIGIN in the plugin's run path counts from the path.
Result<void*> OpenLibrary(const std::string& path, const std::string& real_path, int checked_fd,
                          CallWatchdog* watchdog) {
  void* library = RunWatched(watchdog, CallSubject::OfPlugin(path), "dlopen", [&] {
    return dlopen(real_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  });
  if (library == nullptr) {
    const char* text = dlerror();
    return Refused(path, "dlopen", text == nullptr ? "no reason given" : text,
                   "check that it is a shared library for this machine and that all libraries it "
                   "needs are installed");
  }
  struct stat checked {};
  struct stat now {};
  if (fstat(checked_fd, &checked) != 0 || stat(real_path.c_str(), &now) != 0 ||
      checked.st_dev != now.st_dev || checked.st_ino != now.st_ino) {
    return Refused(path, "dlopen", "the file was exchanged while it was loaded", "try again");
  }
  return library;
}

}  // namespace

Result<const cotune_backend_api_t*> LoadPlugin(const std::string& path, CallWatchdog* watchdog) {
  if (path.empty() || path[0] != '/') {
    return Refused(path, "path", "the path is not absolute", "give the whole path of the plugin");
  }
  std::error_code error;
  const std::string real_path = std::filesystem::canonical(path, error).string();
  if (error) return Refused(path, "open", error.message(), "check the path");
  COTUNE_TRY(const Descriptor file, OpenChecked(path, real_path));
  COTUNE_RETURN_IF_ERROR(CheckFolders(path, real_path));
  COTUNE_TRY(void* opened_library, OpenLibrary(path, real_path, file.get(), watchdog));
  void* library = opened_library;
  const auto query =
      reinterpret_cast<cotune_backend_query_fn>(dlsym(library, COTUNE_BACKEND_QUERY_SYMBOL));
  if (query == nullptr) {
    return Refused(path, "symbol", OtherMajor(library),
                   "use a plugin built for this major version");
  }
  cotune_error_t refusal{};
  refusal.struct_size = sizeof(refusal);
  const cotune_backend_api_t* table = nullptr;
  constexpr const char* kThrew = "it threw an exception: ";
  constexpr const char* kReport = "report it to whoever ships the plugin";
  try {
    table = RunWatched(watchdog, CallSubject::OfPlugin(path), COTUNE_BACKEND_QUERY_SYMBOL,
                       [&] { return query(COTUNE_ABI_MINOR, &refusal); });
  } catch (const std::exception& exception) {
    return Refused(path, "query", std::string(kThrew) + exception.what(), kReport);
  } catch (...) {
    return Refused(path, "query", std::string(kThrew) + "it is no std::exception", kReport);
  }
  if (table == nullptr) {
    const std::string text(refusal.message, strnlen(refusal.message, sizeof(refusal.message)));
    return Refused(path, "query", text.empty() ? "the plugin refused without a reason" : text,
                   "see the plugin's documentation");
  }
  COTUNE_RETURN_IF_ERROR(CheckTable(table, path));
  return table;
}

Result<std::vector<std::string>> ListPlugins(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".so") paths.push_back(at->path().string());
  }
  if (error) {
    return Fail(ErrorCode::kEnvironment, "cannot list the plugins of a folder", folder,
                error.message(),
                "check --plugin, or the setting plugin_path (--plugin-path, COTUNE_PLUGIN_PATH)");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace cotune
