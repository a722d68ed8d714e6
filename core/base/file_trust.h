// Files and folders that somebody else can change: the rule by which plugins and tuned databases
// are trusted.
#ifndef COTUNE_CORE_BASE_FILE_TRUST_H_
#define COTUNE_CORE_BASE_FILE_TRUST_H_

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace cotune {

// Each gives why somebody else than this user and root can change it, as "it belongs to user 1000"
// or "everybody may write to it", or "" when nobody can.
std::string FileTrustMistake(const struct stat& info);
// Others may write to a folder with the sticky bit, where only the owner of an entry replaces it,
// and members of the user's own group to every folder: each user has a group of its own by default.
std::string FolderTrustMistake(const struct stat& info);

// The same for a folder and every folder above it; the answer begins with the one at fault: "folder
// /tmp/x: everybody may write to it". The path is canonical.
std::string FolderPathTrustMistake(const std::filesystem::path& folder);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_FILE_TRUST_H_
