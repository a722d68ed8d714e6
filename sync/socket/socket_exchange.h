// Ranks as processes of one machine, over a Unix-domain socket. Rank 0's process runs the
// coordinator; every rank, rank 0 too, is its client.
#ifndef COTUNE_SYNC_SOCKET_SOCKET_EXCHANGE_H_
#define COTUNE_SYNC_SOCKET_SOCKET_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"
#include "sync/socket/rendezvous_store.h"
#include "sync/wire/limits.h"
#include "sync/wire/log.h"

namespace cotune::sync {

struct SocketExchangeOptions {
  int rank = 0;
  int world_size = 1;  // 1 to 1024
  std::string job_id;  // equal on all ranks of a job, different between jobs
  std::string
      socket_path;  // equal on all ranks; its directory is private to the user, made when missing
  // The user gave no path: an error about a missing rank 0 does not name it.
  bool is_default_path = false;
  // How the other ranks find rank 0, which puts its socket_path and job_id there when it listens
  // and deletes them when all have come; theirs are ignored. nullptr: by socket_path alone.
  // Outlives the call.
  RendezvousStore* store = nullptr;
  // Says what made this process a rank: it ends the line and the error about ranks that do not
  // come. With it a rank that waits for rank 0 logs a line after kJoinNoticeNs. May be "".
  std::string missing_ranks_hint;
  std::string code_version;  // ranks of different versions do not start
  int64_t heartbeat_interval_ns = kHeartbeatIntervalNs;
  int64_t heartbeat_timeout_ns =
      kHeartbeatTimeoutNs;  // silence that means a stopped process; >= 2 intervals
  int64_t deadline_ns = 0;  // absolute: until when all ranks must have come
  // Warnings; on rank 0 those of the coordinator too, from its thread. May be empty.
  LogSink log;
  // Called when this rank learns that the exchange has failed, also between calls, and again for
  // each rank that dies after that while rank 0 is there; may be empty. From any thread that uses
  // the exchange or from the exchange's own: it does not wait and calls nothing of the exchange.
  std::function<void(const Error&)> on_loss;
};

// Returns when all ranks have come. `clock` must outlive the exchange. Errors: kUsage for options,
// kEnvironment for the socket, those of the store, kRankLost when ranks are missing at the
// deadline, have died, or differ in a field. The exchange's destructor says goodbye; on rank 0 it
// waits for the others' goodbyes, but at most kLingerNs. A child that the process forks later has
// no part in the exchange: calls fail with kUsage there, and the destructor does nothing.
Result<std::unique_ptr<RankExchange>> ConnectSocketExchange(const SocketExchangeOptions& options,
                                                            const Clock& clock);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_SOCKET_EXCHANGE_H_
