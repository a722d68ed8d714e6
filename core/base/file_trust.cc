#include "core/base/file_trust.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace cotune {
namespace {

std::string OwnerMistake(const struct stat& info) {
  if (info.st_uid == 0 || info.st_uid == geteuid()) return "";
  return fmt::format("it belongs to user {}", info.st_uid);
}

std::string WriterMistake(const struct stat& info, bool own_group_may) {
  if ((info.st_mode & S_IWOTH) != 0) return "everybody may write to it";
  const bool is_own_group = info.st_gid == 0 || info.st_gid == getegid();
  if ((info.st_mode & S_IWGRP) == 0 || (own_group_may && is_own_group)) return "";
  return fmt::format("group {} may write to it", info.st_gid);
}

}  // namespace

std::string FileTrustMistake(const struct stat& info) {
  std::string mistake = OwnerMistake(info);
  return mistake.empty() ? WriterMistake(info, false) : mistake;
}

std::string FolderTrustMistake(const struct stat& info) {
  std::string mistake = OwnerMistake(info);
  const bool is_sticky = (info.st_mode & S_ISVTX) != 0;
  return mistake.empty() && !is_sticky ? WriterMistake(info, true) : mistake;
}

std::string FolderPathTrustMistake(const std::filesystem::path& folder) {
  for (std::filesystem::path each = folder;; each = each.parent_path()) {
    struct stat info {};
    const std::string mistake =
        stat(each.c_str(), &info) == 0 ? FolderTrustMistake(info) : std::strerror(errno);
    if (!mistake.empty()) return fmt::format("folder {}: {}", each.string(), mistake);
    if (each == each.parent_path()) return "";
  }
}

}  // namespace cotune
