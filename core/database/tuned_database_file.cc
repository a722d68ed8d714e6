#include "core/database/tuned_database_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/file_trust.h"
#include "core/base/unique_fd.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr char kTemporaryMark[] = ".tmp.";  // then the process and a number

tl::unexpected<Error> SystemFailure(std::string what, const std::string& path, int error_number,
                                    std::string next_step) {
  return Fail(ErrorCode::kEnvironment, std::move(what), path, std::strerror(error_number),
              std::move(next_step));
}

tl::unexpected<Error> IsLink(const std::string& path, std::string_view kind) {
  return Fail(ErrorCode::kDatabase, fmt::format("the path of the {} is a symbolic link", kind),
              path, "links are not followed, so that nobody can redirect a write",
              "give the path of the file itself");
}

tl::unexpected<Error> NotRegular(const std::string& path, std::string_view kind) {
  return Fail(ErrorCode::kDatabase, fmt::format("the path of the {} is not a regular file", kind),
              path, "it is a folder, a device or a pipe", "give the path of a file");
}

Status CheckFileStatus(const struct stat& status, const std::string& path, std::string_view kind,
                       uint64_t bytes_max) {
  if (!S_ISREG(status.st_mode)) return NotRegular(path, kind);
  if (std::string mistake = FileTrustMistake(status); !mistake.empty()) {
    return Fail(
        ErrorCode::kDatabase, fmt::format("the {} is not trusted", kind), path, std::move(mistake),
        "if you trust its content, copy it to a file of your own, or run 'chmod go-w' on it");
  }
  if (static_cast<uint64_t>(status.st_size) > bytes_max) {
    return Fail(ErrorCode::kDatabase, fmt::format("the file has {} bytes", status.st_size), path,
                fmt::format("a {} has at most {}", kind, bytes_max),
                "give the path of a file that cotune wrote");
  }
  return {};
}

// The folder counts as well: a user who can write to it can exchange the file, whatever mode the
// file has.
Status CheckFolder(const std::string& path, std::string_view kind) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(FolderOf(path), error);
  if (error) return {};  // what is done with the file tells why
  std::string mistake = FolderPathTrustMistake(folder);
  if (mistake.empty()) return {};
  return Fail(ErrorCode::kDatabase, fmt::format("the {} is not trusted", kind), path,
              std::move(mistake),
              "give a file in a folder that only you can write to, and copy it there if you trust "
              "its content");
}

// The mode that a replaced file keeps; nullopt when there is no file yet.
Result<std::optional<mode_t>> ModeFor(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    return SystemFailure("the tuned database cannot be replaced", path, errno,
                         "check the path and its permissions");
  }
  if (S_ISLNK(status.st_mode)) return IsLink(path, "tuned database");
  if (!S_ISREG(status.st_mode)) return NotRegular(path, "tuned database");
  return static_cast<mode_t>(status.st_mode & 0777u & ~static_cast<mode_t>(S_IWGRP | S_IWOTH));
}

// A file that goes away unless it is renamed.
struct TemporaryFile {
  std::string path;
  UniqueFd fd;
  bool renamed = false;
  ~TemporaryFile() {
    if (fd.is_open() && !renamed) unlink(path.c_str());
  }
};

Status CreateTemporary(const std::string& path, TemporaryFile& file) {
  constexpr int kAttemptsMax = 100;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    file.path = fmt::format("{}{}{}.{}", path, kTemporaryMark, getpid(), attempt);
    file.fd.Reset(
        open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file.fd.is_open()) return {};
    if (errno != EEXIST) break;
  }
  return SystemFailure("a temporary file for the tuned database cannot be created", file.path,
                       errno, "check that the folder exists and may be written");
}

}  // namespace

Result<std::string> ReadDatabaseFile(const std::string& path, std::string_view kind,
                                     uint64_t bytes_max) {
  COTUNE_RETURN_IF_ERROR(CheckFolder(path, kind));
  // O_NONBLOCK: a pipe without a writer must not hold us.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    if (errno == ELOOP) return IsLink(path, kind);
    if (errno == ENOENT) {
      return SystemFailure(fmt::format("there is no {}", kind), path, errno,
                           "run 'cotune tune' first, or check the path");
    }
    return SystemFailure(fmt::format("the {} cannot be opened", kind), path, errno,
                         "check the path and its permissions");
  }
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) {
    return SystemFailure(fmt::format("the {} cannot be examined", kind), path, errno,
                         "check the file system");
  }
  COTUNE_RETURN_IF_ERROR(CheckFileStatus(status, path, kind, bytes_max));

  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have_bytes = 0;
  while (have_bytes < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + have_bytes, bytes.size() - have_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return SystemFailure(fmt::format("the {} cannot be read", kind), path, errno,
                           "check the file system");
    if (got == 0) break;
    have_bytes += static_cast<size_t>(got);
  }
  bytes.resize(have_bytes);
  return bytes;
}

Status ReplaceDatabaseFile(const std::string& path, std::string_view bytes) {
  COTUNE_TRY(const std::optional<mode_t> mode, ModeFor(path));
  TemporaryFile file;
  if (Status created = CreateTemporary(path, file); !created) return created;
  const char* const next_step = mode.has_value()
                                    ? "the old file is intact; check free space and permissions"
                                    : "check free space and permissions";
  if (mode.has_value() && fchmod(file.fd.get(), *mode) != 0) {
    return SystemFailure("the mode of the new tuned database cannot be set", file.path, errno,
                         next_step);
  }
  if (!WriteAll(file.fd.get(), bytes)) {
    return SystemFailure("the new tuned database cannot be written", file.path, errno, next_step);
  }
  if (fsync(file.fd.get()) != 0) {
    return SystemFailure("the new tuned database cannot be made durable", file.path, errno,
                         next_step);
  }
  if (rename(file.path.c_str(), path.c_str()) != 0) {
    return SystemFailure("the new tuned database cannot take its name", path, errno, next_step);
  }
  file.renamed = true;
  return SyncFolder(FolderOf(path));
}

void RemoveTemporaryFiles(const std::string& path) {
  const std::string start = std::filesystem::path(path).filename().string() + kTemporaryMark;
  std::error_code error;
  std::filesystem::directory_iterator entry(FolderOf(path), error);
  // Without an exception where the folder cannot be read on: what is left over is harmless.
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool has_numbers = name.find_first_not_of("0123456789.", start.size()) == name.npos;
    if (name.starts_with(start) && has_numbers) unlink(entry->path().c_str());
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status SyncFolder(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder (EINVAL); a rename is as durable there as it gets.
  if (fd.is_open() && (fsync(fd.get()) == 0 || errno == EINVAL)) return {};
  return SystemFailure("a change in the folder of the tuned database cannot be made durable",
                       folder, errno, "the new file is in place; check the file system");
}

bool WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace cotune
