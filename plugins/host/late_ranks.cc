#include "plugins/host/late_ranks.h"

#include <bit>

namespace cotune::host {
namespace {

constexpr uint64_t Bit(size_t rank) { return uint64_t{1} << rank; }

}  // namespace

uint64_t AwaitedRanks(std::span<const RankState> states, const PublishedWait& wait) {
  uint64_t awaited = 0;
  for (size_t r = 0; r < states.size(); ++r) {
    switch (wait.kind) {
      case PublishedWait::Kind::kNone:
        break;
      case PublishedWait::Kind::kOneRank:
        if (r == wait.rank && !HasReached(states[r].progress, wait.target)) awaited |= Bit(r);
        break;
      case PublishedWait::Kind::kAllRanks:
        if (!HasReached(states[r].progress, wait.target)) awaited |= Bit(r);
        break;
      case PublishedWait::Kind::kArrivals:
        if (!HasReached(states[r].arrivals, wait.target)) awaited |= Bit(r);
        break;
    }
  }
  return awaited;
}

uint64_t LateRanks(std::span<const RankState> states, int rank) {
  const auto self = static_cast<size_t>(rank);
  const uint64_t awaited_by_self = AwaitedRanks(states, states[self].wait) & ~Bit(self);
  uint64_t late = 0;
  uint64_t visited = Bit(self);
  uint64_t open = awaited_by_self;
  while (open != 0) {
    const auto r = static_cast<size_t>(std::countr_zero(open));
    visited |= Bit(r);
    const uint64_t awaited = AwaitedRanks(states, states[r].wait) & ~Bit(r);
    if (awaited == 0) late |= Bit(r);
    open = (open | awaited) & ~visited;
  }
  // All wait for each other: the states were read while they changed. The direct answer is then the
  // best one.
  return late != 0 ? late : awaited_by_self;
}

}  // namespace cotune::host
