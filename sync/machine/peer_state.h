// The process at the other end of a connection, as the owner of the connection sees it.
#ifndef COTUNE_SYNC_MACHINE_PEER_STATE_H_
#define COTUNE_SYNC_MACHINE_PEER_STATE_H_

#include <string>

namespace cotune::sync {

// The two last parts of an error about a rank that is silent. The defaults are for a process that
// cannot be inspected.
struct PeerState {
  std::string cause = "whether its process is stopped or its machine overloaded is not known";
  std::string next_step =
      "see whether that process is stopped (state T) or its machine is overloaded";
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_PEER_STATE_H_
