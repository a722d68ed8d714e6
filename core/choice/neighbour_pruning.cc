#include "core/choice/neighbour_pruning.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

// A decided cell from which a choice may learn.
struct KnownSize {
  uint64_t bytes = 0;
  const DecidedCell* decided = nullptr;
  // The choice that others are compared with; nullptr: the size is no neighbour.
  const Verdict* fastest = nullptr;
};

// The time of a choice at one size.
struct Neighbour {
  uint64_t bytes = 0;
  double ratio = 0;  // to the time of the fastest choice
  const Verdict* fastest = nullptr;
  bool is_winner = false;  // the fastest one
  bool is_kept = false;
};

double Times(uint64_t large_bytes, uint64_t small_bytes) {
  return static_cast<double>(large_bytes) / static_cast<double>(std::max<uint64_t>(1, small_bytes));
}

bool IsWithinFactor(uint64_t a_bytes, uint64_t b_bytes, double factor) {
  return Times(std::max(a_bytes, b_bytes), std::min(a_bytes, b_bytes)) <= factor;
}

bool HasRaced(const Verdict& verdict) {
  const bool has_outcome =
      verdict.outcome == Outcome::kTimed || verdict.outcome == Outcome::kOutpaced;
  return has_outcome && verdict.has_time() && !verdict.samples_ns.empty();
}

const Verdict* FindVerdict(const CellResult& cell, const ChoiceId& id) {
  const auto found = std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                                  [&](const Verdict& verdict) { return verdict.id == id; });
  return found == cell.verdicts.end() ? nullptr : &*found;
}

// Returns whether the cell shows that the choice may not work at its size.
bool HasTrouble(const CellResult& cell, const ChoiceId& id) {
  const Verdict* const verdict = FindVerdict(cell, id);
  return verdict != nullptr && !HasRaced(*verdict);
}

bool IsNeeded(const Winner& winner, const ChoiceId& id) {
  return id == winner.id || id == winner.fallback || id == winner.runner_up ||
         std::find(winner.next_best.begin(), winner.next_best.end(), id) != winner.next_best.end();
}

// Returns the choice that others are compared with in a cell: its winner, or else the fastest one
// that the list has; nullptr if there is none.
const Verdict* FindFastest(const DecidedCell& decided, const ChoiceList& list) {
  if (!decided.winner || decided.cell.is_unsteady) return nullptr;
  const auto may_race = [&](const Verdict& verdict) {
    return HasRaced(verdict) &&
           std::any_of(list.choices.begin(), list.choices.end(),
                       [&](const Choice& choice) { return choice.id == verdict.id; });
  };
  const Verdict* fastest = FindVerdict(decided.cell, decided.winner->id);
  if (fastest != nullptr && may_race(*fastest)) return fastest;
  fastest = nullptr;
  for (const Verdict& verdict : decided.cell.verdicts) {
    if (!may_race(verdict)) continue;
    if (fastest == nullptr || std::pair(verdict.median_ns, verdict.id.text()) <
                                  std::pair(fastest->median_ns, fastest->id.text())) {
      fastest = &verdict;
    }
  }
  return fastest;
}

std::vector<KnownSize> KnownSizes(const ChoiceList& list, uint64_t bytes,
                                  const std::map<uint64_t, DecidedCell>& cells,
                                  const std::set<uint64_t>& unusable) {
  std::vector<KnownSize> sizes;
  for (const auto& [cell_bytes, decided] : cells) {
    if (cell_bytes == bytes) continue;
    const bool is_usable = !unusable.contains(cell_bytes);
    sizes.push_back({cell_bytes, &decided, is_usable ? FindFastest(decided, list) : nullptr});
  }
  return sizes;
}

std::optional<Neighbour> AsNeighbour(const KnownSize& size, const ChoiceId& id) {
  if (size.fastest == nullptr) return std::nullopt;
  const Verdict* const verdict = FindVerdict(size.decided->cell, id);
  if (verdict == nullptr || !HasRaced(*verdict)) return std::nullopt;
  const int64_t best_ns = *std::min_element(verdict->samples_ns.begin(), verdict->samples_ns.end());
  const Winner& winner = *size.decided->winner;
  return Neighbour{
      size.bytes, static_cast<double>(best_ns) / static_cast<double>(size.fastest->median_ns),
      size.fastest, size.fastest->id == winner.id, verdict->is_default || IsNeeded(winner, id)};
}

bool IsSlow(const Neighbour& neighbour, double factor) {
  return !neighbour.is_kept && neighbour.ratio >= factor;
}

// Returns whether both neighbours, one on each side, lie within `factor` of the size.
bool AreWithinFactor(const Neighbour& below, const Neighbour& above, uint64_t bytes,
                     double factor) {
  return IsWithinFactor(below.bytes, bytes, factor) && IsWithinFactor(above.bytes, bytes, factor);
}

// The ratio at a larger size on the straight line, in logarithms of ratio and size, through two
// smaller ones. It is not larger than that at `nearer`.
double RatioBeyond(const Neighbour& farther, const Neighbour& nearer, uint64_t bytes) {
  const double share =
      std::log(Times(bytes, nearer.bytes)) / std::log(Times(nearer.bytes, farther.bytes));
  return nearer.ratio * std::min(1.0, std::pow(nearer.ratio / farther.ratio, share));
}

// Returns the two neighbours of a choice, the smaller one first, if both show that it is slow at
// `bytes`. `timed` are all sizes at which it has a time, ascending.
std::optional<std::pair<Neighbour, Neighbour>> SlowNeighbours(const std::vector<Neighbour>& timed,
                                                              uint64_t bytes) {
  const auto above = std::find_if(timed.begin(), timed.end(), [&](const Neighbour& neighbour) {
    return neighbour.bytes > bytes;
  });
  const auto smaller = above - timed.begin();
  if (above != timed.end()) {
    if (smaller < 1) return std::nullopt;
    const Neighbour& below = *std::prev(above);
    if (!AreWithinFactor(below, *above, bytes, kNeighbourFactorMax)) return std::nullopt;
    const bool is_close = AreWithinFactor(below, *above, bytes, kCloseFactor);
    const double factor = is_close ? kSlowFactorOfClose : kSlowFactor;
    if (!IsSlow(below, factor) || !IsSlow(*above, factor)) return std::nullopt;
    return std::pair(below, *above);
  }
  if (smaller < 2) return std::nullopt;
  const Neighbour& nearer = timed.back();
  const Neighbour& farther = *std::prev(timed.end(), 2);
  const bool is_near = IsWithinFactor(nearer.bytes, bytes, kBeyondFactorMax) &&
                       IsWithinFactor(farther.bytes, nearer.bytes, kNeighbourFactorMax);
  if (!is_near || !IsSlow(farther, kSlowFactor) || !IsSlow(nearer, kSlowFactor)) {
    return std::nullopt;
  }
  if (RatioBeyond(farther, nearer, bytes) < kSlowFactor) return std::nullopt;
  return std::pair(farther, nearer);
}

}  // namespace

MeasuringOrder OrderOfSizes(std::span<const uint64_t> sizes_bytes) {
  MeasuringOrder order;
  // Sizes from `end` on are larger than the one that is looked for.
  auto end = std::find_if(sizes_bytes.begin(), sizes_bytes.end(), [&](uint64_t bytes) {
    return Times(sizes_bytes.back(), bytes) < kBeyondFactorMax;
  });
  if (end == sizes_bytes.begin()) {
    order.first.assign(sizes_bytes.begin(), sizes_bytes.end());
    return order;
  }
  auto at = std::prev(end);
  order.first.push_back(*at);
  while (at != sizes_bytes.begin()) {
    const auto near = std::find_if(sizes_bytes.begin(), at, [&](uint64_t bytes) {
      return Times(*at, bytes) <= kNeighbourFactorMax;
    });
    at = near == at ? std::prev(at) : near;
    order.first.push_back(*at);
  }
  std::reverse(order.first.begin(), order.first.end());
  order.rest.push_back(sizes_bytes.back());
  std::set_difference(sizes_bytes.begin(), std::prev(sizes_bytes.end()), order.first.begin(),
                      order.first.end(), std::back_inserter(order.rest));
  return order;
}

std::vector<SlowChoice> RefuseSlowChoices(const ChoiceList& list, uint64_t bytes,
                                          const std::map<uint64_t, DecidedCell>& cells,
                                          const std::set<uint64_t>& unusable) {
  const std::vector<KnownSize> sizes = KnownSizes(list, bytes, cells, unusable);
  std::vector<SlowChoice> refused;
  for (const Choice& choice : list.choices) {
    if (choice.is_default) continue;
    std::vector<Neighbour> timed;
    bool has_trouble = false;
    for (const KnownSize& size : sizes) {
      has_trouble = has_trouble || (IsWithinFactor(size.bytes, bytes, kNeighbourFactorMax) &&
                                    HasTrouble(size.decided->cell, choice.id));
      if (const auto neighbour = AsNeighbour(size, choice.id)) timed.push_back(*neighbour);
    }
    if (has_trouble) continue;
    const auto slow = SlowNeighbours(timed, bytes);
    if (!slow) continue;
    const auto& [one, other] = *slow;
    const bool are_winners = one.is_winner && other.is_winner;
    refused.push_back(
        {{choice.id.text(),
          fmt::format("{}{:.1f} and {:.1f} times {} at {} and {} bytes", kNotRaced, one.ratio,
                      other.ratio,
                      are_winners ? "the winner's time" : "the time of the fastest listed choice",
                      one.bytes, other.bytes)},
         {one.fastest->id, other.fastest->id}});
  }
  return refused;
}

std::vector<SlowChoice> ChoicesToRaceAfterAll(std::span<const SlowChoice> slow,
                                              const DecidedCell& decided) {
  const auto is_slow = [&](const ChoiceId& id) {
    return std::any_of(slow.begin(), slow.end(),
                       [&](const SlowChoice& each) { return each.refusal.choice == id.text(); });
  };
  // A faster choice that is slow itself did not race because of one that is faster still.
  const auto has_run = [&](const ChoiceId& id) {
    const Verdict* const verdict = FindVerdict(decided.cell, id);
    return verdict == nullptr ? is_slow(id) : HasRaced(*verdict);
  };
  std::vector<SlowChoice> to_race;
  for (const SlowChoice& each : slow) {
    const bool is_grounded =
        decided.winner && std::all_of(each.faster.begin(), each.faster.end(), has_run);
    if (!is_grounded) to_race.push_back(each);
  }
  return to_race;
}

}  // namespace cotune
