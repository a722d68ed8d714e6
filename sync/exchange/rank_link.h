// How a rank's calls reach the coordinator: sockets, or queues in one process.
#ifndef COTUNE_SYNC_EXCHANGE_RANK_LINK_H_
#define COTUNE_SYNC_EXCHANGE_RANK_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"
#include "sync/machine/rank_machine.h"
#include "sync/wire/frame_codec.h"

namespace cotune::sync {

// Hands an event to the rank's machine and waits for its completion. Thread-safe. The destructor
// says goodbye.
class RankLink {
 public:
  using Ask = std::variant<JoinAsked, CallAsked, VoteAsked, StoreAsked>;

  virtual ~RankLink() = default;

  // The token in `ask` is chosen by the link.
  virtual Result<FramePtr> Call(Ask ask) = 0;
  virtual void Leave(const std::string& channel) = 0;
  // As RankExchange::GiveUp.
  virtual void GiveUp(const Error& error) = 0;
  virtual const Clock& clock() const = 0;
  // When the job began, on clock(), as JobClock knows it.
  virtual int64_t JobBeginNs() = 0;
};

// The exchange of the whole job over a link that has joined.
std::unique_ptr<RankExchange> MakeJobExchange(std::shared_ptr<RankLink> link, int rank,
                                              int world_size);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_EXCHANGE_RANK_LINK_H_
