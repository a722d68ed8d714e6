// Reading and replacing the file of a tuned database. A path names a regular file, never a link.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_FILE_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace cotune {

// All bytes of the file; `kind` names it in errors: "tuned database" or "journal". kEnvironment
// when it does not exist or cannot be read; kDatabase for a link, what is not a regular file, one
// that somebody else than this user and root can change or exchange (core/base/file_trust.h), or
// more than `bytes_max`.
Result<std::string> ReadDatabaseFile(const std::string& path, std::string_view kind,
                                     uint64_t bytes_max);

// Writes a temporary file in the same folder, makes it durable and renames it over `path`; a file
// that was there is whole and unchanged on any failure, and keeps its mode (less the right of
// others to write) on success. kEnvironment names the step that failed; kDatabase when `path` is a
// link or no regular file.
Status ReplaceDatabaseFile(const std::string& path, std::string_view bytes);

// Removes the temporary files of processes that died while they replaced `path`. The caller holds
// the lock of the file, so nobody replaces it at this moment.
void RemoveTemporaryFiles(const std::string& path);

// "folder of `path`" for opening: "." when there is no slash.
std::string FolderOf(const std::string& path);
// Makes renames and removals in this folder durable.
Status SyncFolder(const std::string& folder);
// Writes all of it at the descriptor's position; errno tells why when false.
bool WriteAll(int descriptor, std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_FILE_H_
