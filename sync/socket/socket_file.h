// The file of the socket that this process listens at, for handlers of signals that end it.
#ifndef COTUNE_SYNC_SOCKET_SOCKET_FILE_H_
#define COTUNE_SYNC_SOCKET_SOCKET_FILE_H_

#include <string>

namespace cotune::sync {

// This process listens at `path` from the first call to the second. It remembers one file only, the
// first. One thread at a time.
void NoteSocketFile(const std::string& path);
void ForgetSocketFile(const std::string& path);

// Removes the file if this process listens at it; a forked child does not. Safe in a signal
// handler: the process ends after it.
void RemoveNotedSocketFile();

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_SOCKET_FILE_H_
