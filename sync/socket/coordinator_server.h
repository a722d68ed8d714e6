// The coordinator on a Unix-domain socket: CoordinatorMachine with Asio around it, on a thread of
// its own.
#ifndef COTUNE_SYNC_SOCKET_COORDINATOR_SERVER_H_
#define COTUNE_SYNC_SOCKET_COORDINATOR_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "sync/machine/coordinator_machine.h"
#include "sync/wire/limits.h"
#include "sync/wire/log.h"

namespace cotune::sync {

struct CoordinatorServerOptions {
  CoordinatorConfig config;
  std::string socket_path;
  int64_t listen_deadline_ns = INT64_MAX;  // absolute, see ListenAt
  int64_t linger_ns = kLingerNs;
  LogSink log;  // may be empty; called from the server's thread, and from Start
};

class CoordinatorServer {
 public:
  // Listens when it returns. `clock` must outlive the server. Errors as ListenAt.
  static Result<std::unique_ptr<CoordinatorServer>> Start(CoordinatorServerOptions options,
                                                          const Clock& clock);

  // Waits until every rank has left, or has been told of the failure, but at most linger_ns; then
  // ends the thread and removes the socket.
  ~CoordinatorServer();

 private:
  class Loop;
  explicit CoordinatorServer(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_COORDINATOR_SERVER_H_
