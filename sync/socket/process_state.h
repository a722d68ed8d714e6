// Finds out why the process of a rank is silent: stopped, ended, or on an overloaded machine.
#ifndef COTUNE_SYNC_SOCKET_PROCESS_STATE_H_
#define COTUNE_SYNC_SOCKET_PROCESS_STATE_H_

#include <cstddef>

#include "sync/machine/peer_state.h"

namespace cotune::sync {

// The facts about a process of this machine.
struct ProcessFacts {
  int pid = 0;
  // As in /proc/PID/stat: 'T' and 't' are stopped, 'Z' has ended. 0: the process cannot be seen.
  char state = 0;
  int ranks = 1;          // the size of the job; all are on this machine
  size_t processors = 0;  // the ranks may use them; 0: not known
};

// Pure.
PeerState PeerStateOf(const ProcessFacts& facts);

// The process at the other end of a connected Unix socket, in a job of `ranks`. Less than a
// millisecond. Any thread.
ProcessFacts LookAtPeer(int socket_fd, int ranks);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_PROCESS_STATE_H_
