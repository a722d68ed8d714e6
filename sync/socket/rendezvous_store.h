// A store of the caller through which ranks find the socket of rank 0.
#ifndef COTUNE_SYNC_SOCKET_RENDEZVOUS_STORE_H_
#define COTUNE_SYNC_SOCKET_RENDEZVOUS_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/fork_guard.h"
#include "core/base/status.h"

namespace cotune::sync {

// One key of a key-value store that all ranks of a job reach; one call at a time. Deadlines are
// absolute, and a call returns soon after its deadline whatever the store does.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // Replaces the value.
  virtual Status Put(std::string_view value, int64_t deadline_ns) = 0;
  // Waits for a value; nullopt when none is there by the deadline.
  virtual Result<std::optional<std::string>> Get(int64_t deadline_ns) = 0;
  // Without a value it does nothing.
  virtual Status Delete(int64_t deadline_ns) = 0;
  // The key, for messages.
  virtual std::string name() const = 0;
};

// The value that rank 0 puts.
struct RankZeroAddress {
  std::string boot_id;  // tells hosts apart, and a host before and after it was started anew
  std::string host;     // its name, for messages
  std::string socket_path;
  std::string job_id;  // of this attempt of the job

  std::string ToText() const;
  // nullopt when cotune has not written the text.
  static std::optional<RankZeroAddress> Parse(std::string_view text);
};

// The address of a rank 0 in this process.
RankZeroAddress AddressHere(const std::string& socket_path, const std::string& job_id);

struct ReachedRankZero {
  HomeFd socket;
  std::string job_id;
};

// Connects to the rank 0 whose address the store holds. An address at which nobody listens, or of
// another host, is taken for a leftover of an earlier attempt: the store is read again until it
// holds a better one. Errors: kEnvironment for a value that cotune has not written, kRankLost
// naming rank 0 at the deadline, and those of the store.
Result<ReachedRankZero> ReachRankZero(RendezvousStore& store, int rank, const Clock& clock,
                                      int64_t deadline_ns);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_RENDEZVOUS_STORE_H_
