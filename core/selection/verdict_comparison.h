// Compares the times of two choices of a cell: by their medians, by the rounds that both took part
// in, and by their intervals. Each function is pure.
#ifndef COTUNE_CORE_SELECTION_VERDICT_COMPARISON_H_
#define COTUNE_CORE_SELECTION_VERDICT_COMPARISON_H_

#include <cstdint>
#include <utility>

#include "core/selection/select_winner.h"
#include "core/selection/verdict.h"

namespace cotune {

bool HasOutcome(const Verdict& verdict, Outcome outcome);

// Returns true if the choice counts at all: it has a time and did not fail afterwards.
bool HasRaced(const Verdict& verdict);

bool IsFaster(const Verdict& a, const Verdict& b);

// The medians and intervals of two choices in the rounds that both took part in, because a slow
// round slows only the choices that are still in the race. Nearly the same rounds: samples that did
// not count shift them by a few.
std::pair<MedianInterval, MedianInterval> InCommonRounds(const Verdict& a, const Verdict& b);

// The medians of two choices; if one was eliminated, those of their common rounds.
std::pair<int64_t, int64_t> ComparableMedians(const Verdict& a, const Verdict& b);

// The time of a choice by that of the fastest one. An outpaced choice was slower than some other
// one in its rounds, so it is not faster than the fastest because that one had a bad moment there.
double TimeByFastest(const Verdict& verdict, const Verdict& fastest);

// Returns whether the 99 % intervals of the common rounds show that `a` is faster: those of the two
// medians lie apart, or that of the ratio of both times of a round lies below 1, because noise that
// slows a whole round widens the intervals of the medians only.
bool IsFasterInCommonRounds(const Verdict& a, const Verdict& b);

bool IntervalsOverlap(const Verdict& a, const Verdict& b);

// An interval of 99 % needs eight samples; fewer prove nothing about steadiness.
bool IsIntervalWide(const Verdict& verdict);

bool IsWithinNoise(int64_t slower_ns, int64_t faster_ns, double noise_percent);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_VERDICT_COMPARISON_H_
