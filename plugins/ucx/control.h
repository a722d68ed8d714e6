// Messages by which the ends of a group tell each other, beside the data, what they wait for, which
// calls they make, and why the group has failed.
#ifndef COTUNE_PLUGINS_UCX_CONTROL_H_
#define COTUNE_PLUGINS_UCX_CONTROL_H_

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "plugins/sdk/call_record.h"
#include "plugins/ucx/sdk_names.h"

namespace cotune::ucx {

// A call with elements, numbered from 1 in its group; number 0 stands for none.
struct NumberedCall {
  uint64_t number = 0;
  sdk::CallRecord record;
};

inline constexpr size_t kCallsKept = 4;
using LatestCalls = std::array<NumberedCall, kCallsKept>;  // call n at n % kCallsKept

// Why a group is unusable.
struct GroupFailure {
  enum class Kind : uint8_t { kDied, kLost, kLeft, kLate, kStuck, kOtherCall, kAborted, kInStore };
  Kind kind = Kind::kAborted;
  int32_t culprit = 0;            // rank in the group
  int32_t reporter = 0;           // rank in the group that noticed
  int32_t native_code = 0;        // kLost: UCX's status
  uint64_t late = 0;              // kLate: bit a rank
  NumberedCall culprits_call{};   // kOtherCall and kStuck
  NumberedCall reporters_call{};  // the same
};

struct ControlMessage {
  enum class Kind : uint8_t {
    kHello,    // the connection works
    kReady,    // all connections of the sender work
    kState,    // what the sender waits for
    kInquiry,  // the same, and the receiver is to answer by its state
    kFailure,  // the group has failed
    kLeft,     // the sender has destroyed its group
  };
  Kind kind = Kind::kState;
  int32_t sender = 0;
  uint64_t group = 0;    // digest of the group and its job
  uint64_t awaited = 0;  // bit a rank
  LatestCalls calls{};
  GroupFailure failure{};
};
static_assert(std::is_trivially_copyable_v<ControlMessage>);

// Returns true if a rank of this group may have sent the message: ranks and kinds are in range, and
// the group is the same. Anyone may send to an open port. Pure.
bool IsSound(const ControlMessage& message, uint64_t group, int world_size);

// What is known of a rank when a deadline has come.
struct RankView {
  bool is_silent = false;  // has not answered lately
  uint64_t awaited = 0;
};

// Bit r is set when rank r is silent.
uint64_t SilentRanks(std::span<const RankView> views);

// Bit r is set when rank r holds up rank `self`, which waits for `awaited`, directly or through
// others: it does not answer, or it answers that it waits for nobody. 0: they wait for each other.
// Pure.
uint64_t LateRanks(std::span<const RankView> views, int self, uint64_t awaited);

// The same with what is seen of processes: `stopped` has the bits of ranks whose processes are
// stopped. Over shared memory a rank that stops while it sends may make others silent, so that a
// silent rank that is stopped is at fault where no rank answers that it waits for nobody. If
// `awaited` is empty no other rank holds up rank `self`, so that it is at fault itself. Pure.
uint64_t RanksAtFault(std::span<const RankView> views, int self, uint64_t awaited,
                      uint64_t stopped);

// What the records of call `number` that are known say; `known[r]` is null where rank r has said
// nothing of it. `known[self]` is there.
struct CallComparison {
  bool differs = false;
  bool is_complete = false;  // the calls of all ranks are known
  // The ranks in the minority are at fault; of two sides that are equally many, the one with the
  // higher rank.
  int culprit = -1;
  int reporter = -1;
};
CallComparison CompareCalls(std::span<const sdk::CallRecord* const> known, int self);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_CONTROL_H_
