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

// The time of a choice at one size.
struct Neighbour {
  uint64_t bytes = 0;
  double ratio = 0;  // to the winner's time
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

std::optional<Neighbour> AsNeighbour(uint64_t bytes, const DecidedCell& decided,
                                     const ChoiceId& id) {
  if (!decided.winner || decided.winner->median_ns <= 0 || decided.cell.is_unsteady) {
    return std::nullopt;
  }
  const Verdict* const verdict = FindVerdict(decided.cell, id);
  if (verdict == nullptr || !HasRaced(*verdict)) return std::nullopt;
  const int64_t best_ns = *std::min_element(verdict->samples_ns.begin(), verdict->samples_ns.end());
  return Neighbour{bytes,
                   static_cast<double>(best_ns) / static_cast<double>(decided.winner->median_ns),
                   verdict->is_default || IsNeeded(*decided.winner, id)};
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

std::vector<Refusal> RefuseSlowChoices(const ChoiceList& list, uint64_t bytes,
                                       const std::map<uint64_t, DecidedCell>& cells) {
  std::vector<Refusal> refusals;
  for (const Choice& choice : list.choices) {
    if (choice.is_default) continue;
    std::vector<Neighbour> timed;
    bool has_trouble = false;
    for (const auto& [cell_bytes, decided] : cells) {
      if (cell_bytes == bytes) continue;
      has_trouble = has_trouble || (IsWithinFactor(cell_bytes, bytes, kNeighbourFactorMax) &&
                                    HasTrouble(decided.cell, choice.id));
      if (const auto neighbour = AsNeighbour(cell_bytes, decided, choice.id)) {
        timed.push_back(*neighbour);
      }
    }
    if (has_trouble) continue;
    const auto slow = SlowNeighbours(timed, bytes);
    if (!slow) continue;
    refusals.push_back(
        {choice.id.text(),
         fmt::format("{}{:.1f} and {:.1f} times the winner's time at {} and {} bytes", kNotRaced,
                     slow->first.ratio, slow->second.ratio, slow->first.bytes,
                     slow->second.bytes)});
  }
  return refusals;
}

}  // namespace cotune
