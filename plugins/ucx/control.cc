#include "plugins/ucx/control.h"

#include <bit>
#include <utility>

namespace cotune::ucx {
namespace {

constexpr uint64_t Bit(int rank) { return uint64_t{1} << rank; }
constexpr uint64_t AllRanks(int world_size) { return ~uint64_t{0} >> (64 - world_size); }

bool IsSame(const sdk::CallRecord& one, const sdk::CallRecord& other) {
  return one.digest == other.digest && one.kind == other.kind && one.count == other.count;
}

bool IsSound(const GroupFailure& failure, int world_size) {
  const auto is_rank = [&](int32_t rank) { return rank >= 0 && rank < world_size; };
  // A failure in the store is read there by each rank itself.
  return failure.kind < GroupFailure::Kind::kInStore && is_rank(failure.culprit) &&
         is_rank(failure.reporter) && (failure.late & ~AllRanks(world_size)) == 0;
}

}  // namespace

bool IsSound(const ControlMessage& message, uint64_t group, int world_size) {
  const bool is_known = message.kind <= ControlMessage::Kind::kLeft;
  const bool is_rank = message.sender >= 0 && message.sender < world_size;
  const bool awaits_ranks = (message.awaited & ~AllRanks(world_size)) == 0;
  const bool is_failure = message.kind == ControlMessage::Kind::kFailure;
  return message.group == group && is_known && is_rank && awaits_ranks &&
         (!is_failure || IsSound(message.failure, world_size));
}

uint64_t SilentRanks(std::span<const RankView> views) {
  uint64_t silent = 0;
  for (size_t r = 0; r < views.size(); ++r) {
    if (views[r].is_silent) silent |= Bit(static_cast<int>(r));
  }
  return silent;
}

uint64_t LateRanks(std::span<const RankView> views, int self, uint64_t awaited) {
  uint64_t late = 0;
  uint64_t visited = Bit(self);
  uint64_t open = awaited & ~visited;
  while (open != 0) {
    const int rank = std::countr_zero(open);
    visited |= Bit(rank);
    const RankView& view = views[static_cast<size_t>(rank)];
    const uint64_t next = view.awaited & ~Bit(rank);
    if (view.is_silent || next == 0) {
      late |= Bit(rank);
    } else {
      open |= next;
    }
    open &= ~visited;
  }
  return late;
}

uint64_t RanksAtFault(std::span<const RankView> views, int self, uint64_t awaited,
                      uint64_t stopped) {
  if ((awaited & ~Bit(self)) == 0) return Bit(self);
  const uint64_t late = LateRanks(views, self, awaited);
  const uint64_t silent = SilentRanks(views);
  const bool is_idle_rank_late = (late & ~silent) != 0;
  return !is_idle_rank_late && (stopped & silent) != 0 ? stopped & silent : late;
}

CallComparison CompareCalls(std::span<const sdk::CallRecord* const> known, int self) {
  CallComparison result;
  result.is_complete = true;
  int equal = 1;
  int differing = 0;
  int other = -1;
  const sdk::CallRecord& own = *known[static_cast<size_t>(self)];
  for (int rank = 0; rank < static_cast<int>(known.size()); ++rank) {
    const sdk::CallRecord* record = known[static_cast<size_t>(rank)];
    if (rank == self) continue;
    if (record == nullptr) {
      result.is_complete = false;
      continue;
    }
    const bool is_same = IsSame(own, *record);
    ++(is_same ? equal : differing);
    if (!is_same) other = rank;
  }
  result.differs = differing > 0;
  if (!result.differs) return result;
  result.culprit = other;
  result.reporter = self;
  if (equal < differing || (equal == differing && self > other)) {
    std::swap(result.culprit, result.reporter);
  }
  return result;
}

}  // namespace cotune::ucx
