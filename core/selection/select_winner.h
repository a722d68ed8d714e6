// Verdicts to winners: pure functions.
#ifndef COTUNE_CORE_SELECTION_SELECT_WINNER_H_
#define COTUNE_CORE_SELECTION_SELECT_WINNER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/tuning_settings.h"
#include "core/selection/verdict.h"

namespace cotune {

inline constexpr size_t kNextBestMax = 3;

// A choice and its time.
struct TimedChoice {
  ChoiceId id;
  int64_t median_ns = 0;
  bool operator==(const TimedChoice&) const = default;
};

// The winner of one cell and by how much.
struct Winner {
  ChoiceId id;
  int64_t median_ns = 0;
  // The fastest of the others; of those with enough samples for a time, if there are any.
  std::optional<ChoiceId> runner_up{};
  int64_t runner_up_median_ns = 0;
  std::optional<ChoiceId> fallback{};  // the default choice that raced
  int64_t fallback_median_ns = 0;
  // The choices that are tried, in this order, for a call that the winner does not run (next_best.h
  // has the reasons): those with a time, the fastest first, kNextBestMax at most. The default is
  // not among them, because it comes last anyway.
  std::vector<ChoiceId> next_best{};
  // The fastest unfused choice if a fused one wins. Files do not have it; BestUnfused derives it.
  std::optional<TimedChoice> best_unfused{};
  std::string why{};  // one sentence
  bool operator==(const Winner&) const = default;
};

struct SelectionRules {
  double noise_percent = 2.0;
  double fusion_speedup_threshold = 1.02;

  static SelectionRules Of(const TuningSettings& settings) {
    return {settings.noise_percent, settings.fusion.speedup_threshold};
  }
};

// Choices are of two classes: *fused* ones, of which a step has a key of the host (`fuse` or
// `via`), and *unfused* ones, all others. The fastest choice of a class stands for it.
//
// The default is kept if no other choice beats it: if each one is faster by less than noise_percent
// (a fused one by less than the larger of it and fusion_speedup_threshold), or has a 99 % interval
// that overlaps that of the default. A default that the race has eliminated is compared in the
// rounds that both took part in, by the medians alone; but by the intervals if a choice that was
// faster in its rounds failed later, or if the other one was eliminated too. An unsteady cell keeps
// its default.
//
// If an unfused choice beats the default, or there is none, the fused class wins only if the
// unfused one takes longer by more than the larger of fusion_speedup_threshold and noise_percent,
// in the rounds of both if one was eliminated; or if no unfused choice has a time. If fused ones
// alone beat the default, the faster of both classes wins, but no unfused choice that was
// eliminated.
//
// If tied choices (TiedChoices) have warm times, the smallest product of both times wins: as a
// program's buffers are sometimes in the cache and sometimes not, each counts alike. Equal times:
// smaller median, then smaller id. Choices that have no time, computed wrong or failed cannot win,
// and one that was outpaced wins only by a warm time, or when none was timed to the end. With
// several backends the default is the first one in the choice list that has a time: what runs when
// nothing is tuned. kEnvironment, with every choice's fate, when no choice has a time.
Result<Winner> SelectWinner(const CellResult& cell, const SelectionRules& rules);

// Returns whether the times of the winner vary too much to be believed: the 99 % interval of its
// median is wider than kSteadyWidth of the median. Such a cell is measured a second time.
inline constexpr double kSteadyWidth = 0.5;
bool HasWideInterval(const CellResult& cell, const Winner& winner);

// Positions in cell.verdicts of the choices whose times do not say which one is the fastest: the
// fastest one and the next ones within noise_percent of it, kTiedMax at most, in the order of their
// times; all of the class of the winner. One that was outpaced is compared in its own rounds, of
// which it needs eight. Empty if the default wins, and if the fastest is alone. Choices that the
// default would win against, and fused ones that would not win, are not among them.
inline constexpr size_t kTiedMax = 8;
std::vector<size_t> TiedChoices(const CellResult& cell, const SelectionRules& rules);

// The fastest unfused choice of the cell if `winner` is a fused one and an unfused one has a time.
std::optional<TimedChoice> BestUnfused(const CellResult& cell, const ChoiceId& winner);

// A cell behind selection: its winner, or why it has none (kEnvironment). Who needs the winner of a
// cell takes it from here, so that all of them have the same one.
struct DecidedCell {
  CellResult cell;
  Result<Winner> winner;
};
DecidedCell Decide(CellResult cell, const SelectionRules& rules);

// The result of a cell of two heats, the second of which had the winner, the default and, if a
// fused choice won, the fastest unfused choice of the first. The second heat alone decides: what
// has a time from the first one only gets kLostHeat, by which it cannot win. Clocks are those of
// the second heat.
CellResult JoinHeats(CellResult first, CellResult second);

// One range of sizes with its winner: first_bytes <= bytes < end_bytes; the range that ends at
// UINT64_MAX holds that size too.
struct SizeRange {
  uint64_t first_bytes = 0;
  uint64_t end_bytes = UINT64_MAX;
  ChoiceId choice;
  bool operator==(const SizeRange&) const = default;
};

// Covers 0..UINT64_MAX: neighbouring sizes with the same winner are merged, a boundary lies at the
// geometric mean of the two measured sizes (rounded up, so that each measured size stays with its
// own winner), the ends extend outwards. `winners` are (bytes, winner), strictly ascending in
// bytes, not empty.
std::vector<SizeRange> MergeRanges(std::span<const std::pair<uint64_t, ChoiceId>> winners);

// Median and 99 % order-statistic interval of samples (any order). With fewer than 8 samples the
// interval is the range. The median of an even number is the mean of the two in the middle, rounded
// down. All 0 when there is no sample.
struct MedianInterval {
  int64_t median_ns = 0, low_ns = 0, high_ns = 0;
};
MedianInterval MedianWithInterval(std::vector<int64_t> samples_ns);

// The 99 % interval of the median of n samples is x(k)..x(n + 1 - k) in ascending order, k from 1;
// the largest such k. 0 for n < 8, where none exists.
size_t MedianIntervalRank(size_t n);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_SELECT_WINNER_H_
