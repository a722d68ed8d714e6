#include "plugins/cuda/compile/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

namespace {

namespace fs = std::filesystem;

tl::unexpected<sdk::Failure> Failed(const std::string& path, int code) {
  return Fail(COTUNE_UNSUPPORTED, fmt::format("{}: {}", path, std::strerror(code)), code);
}

// Why somebody else can change a folder on the way to one of the user's; "" when nobody can.
std::string MistakeOnTheWay(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return fmt::format("it belongs to user {}", info.st_uid);
  }
  if (!S_ISDIR(info.st_mode)) return "it is no folder";
  // In a folder with the sticky bit (such as /tmp) only the owner of an entry replaces it.
  if ((info.st_mode & S_ISVTX) != 0) return "";
  if ((info.st_mode & S_IWOTH) != 0) return "everybody may write to it";
  // Folders of the user's own group are common: it is the default where each user has a group.
  const bool is_own_group = info.st_gid == 0 || info.st_gid == getegid();
  if ((info.st_mode & S_IWGRP) != 0 && !is_own_group) {
    return fmt::format("group {} may write to it", info.st_gid);
  }
  return "";
}

// The same for what holds the user's bytes.
std::string Mistake(const struct stat& info) {
  if (info.st_uid != geteuid()) return fmt::format("it belongs to user {}", info.st_uid);
  if ((info.st_mode & S_IWOTH) != 0) return "everybody may write to it";
  if ((info.st_mode & S_IWGRP) != 0) return fmt::format("group {} may write to it", info.st_gid);
  return "";
}

// Makes a folder and those above it that are missing, for this user alone.
void MakeFolders(const fs::path& path) {
  fs::path made;
  for (const fs::path& part : path) {
    made /= part;
    mkdir(made.c_str(), 0700);  // one that is there stays as it is; opening it tells the rest
  }
}

// Why somebody else could exchange what lies below a path without links; "" when nobody could.
std::string MistakeAbove(const std::string& path) {
  for (fs::path folder = path;; folder = folder.parent_path()) {
    struct stat info {};
    const bool is_known = lstat(folder.c_str(), &info) == 0;
    const std::string mistake = is_known ? MistakeOnTheWay(info) : std::strerror(errno);
    if (!mistake.empty()) return fmt::format("folder {}: {}", folder.string(), mistake);
    if (folder == folder.parent_path()) return "";
  }
}

}  // namespace

Result<PrivateFolder> PrivateFolder::Open(const std::string& path) {
  std::error_code error;
  fs::path real_path = fs::canonical(path, error);
  if (error) {
    MakeFolders(path);
    real_path = fs::canonical(path, error);
  }
  if (error) return Failed(path, error.value());
  if (const std::string mistake = MistakeAbove(real_path.parent_path().string());
      !mistake.empty()) {
    return Fail(COTUNE_UNSUPPORTED, mistake);
  }
  Descriptor folder(open(real_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (folder.get() < 0 || fstat(folder.get(), &info) != 0) {
    return Failed(real_path.string(), errno);
  }
  if (const std::string mistake = Mistake(info); !mistake.empty()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("folder {}: {}; chmod 700 it, or let it belong to you",
                            real_path.string(), mistake));
  }
  return PrivateFolder(std::move(folder));
}

Result<std::string> PrivateFolder::Read(const std::string& name, uint64_t bytes_max) const {
  // Without O_NONBLOCK a pipe would be waited for.
  const Descriptor file(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return "";
  if (file.get() < 0 && errno == ELOOP) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("{}: it is a symbolic link", name));
  }
  struct stat info {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return Failed(name, errno);
  std::string mistake = S_ISREG(info.st_mode) ? Mistake(info) : "it is not a regular file";
  if (mistake.empty() && static_cast<uint64_t>(info.st_size) > bytes_max) {
    mistake =
        fmt::format("it has {} bytes, more than the {} of any kernel", info.st_size, bytes_max);
  }
  if (!mistake.empty()) return Fail(COTUNE_UNSUPPORTED, fmt::format("{}: {}", name, mistake));
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(name, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

bool PrivateFolder::Write(const std::string& name, const std::string& bytes) const {
  static std::atomic<uint64_t> count{0};
  const std::string temporary = fmt::format("{}.{}.{}", name, getpid(), count.fetch_add(1));
  bool is_written = false;
  {
    const Descriptor file(openat(folder_.get(), temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) return false;
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = write(file.get(), bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) break;
      done += static_cast<size_t>(put);
    }
    is_written = done == bytes.size();
  }
  // A link in the file's place is replaced, not followed.
  if (is_written && renameat(folder_.get(), temporary.c_str(), folder_.get(), name.c_str()) == 0) {
    return true;
  }
  unlinkat(folder_.get(), temporary.c_str(), 0);
  return false;
}

Descriptor PrivateFolder::OpenLock(const std::string& name) const {
  Descriptor lock(openat(folder_.get(), name.c_str(),
                         O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat info {};
  const bool is_usable = lock.get() >= 0 && fstat(lock.get(), &info) == 0 &&
                         S_ISREG(info.st_mode) && Mistake(info).empty();
  return is_usable ? std::move(lock) : Descriptor();
}

}  // namespace cotune::cuda
