// The socket of a job, for handlers of signals that end rank 0.
#ifndef COTUNE_INTEGRATION_JOB_SOCKET_H_
#define COTUNE_INTEGRATION_JOB_SOCKET_H_

namespace cotune {

// Removes the socket that this process listens at as rank 0, so that the next job does not warn of
// a stale one. Safe in the handler of a signal that ends the process.
void RemoveSocketInHandler();

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_JOB_SOCKET_H_
