// How many calls a sample of each choice has.
#ifndef COTUNE_CORE_BENCHMARK_CALIBRATION_H_
#define COTUNE_CORE_BENCHMARK_CALIBRATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/benchmark/cell_steps.h"
#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/race.h"
#include "core/benchmark/racing_choice.h"
#include "core/problem/problem.h"

namespace cotune {

// The number of calls in a row whose time fills a sample. Pure; equal on all ranks.
class SampleRepetitions {
 public:
  SampleRepetitions(int64_t sample_ns, int32_t copies, MemoryKind memory)
      : sample_ns_(sample_ns), copies_(copies), memory_(memory) {}

  int32_t CallsFor(int64_t call_ns) const;
  // The calls of a short sample: a quarter of those of a sample, but at least two of short calls
  // and one of long ones, if a sample has as many.
  int32_t ShortCallsFor(int64_t call_ns) const;
  // Returns true if a sample of so many calls is to begin with an untimed call that it does not
  // have by itself: what precedes a call matters to its time, and samples of one call follow each
  // other.
  bool NeedsUntimedCall(int32_t repetitions, int64_t call_ns) const;
  // Calls in a row that show how long one of them takes; 0 where a single call is so long that its
  // check has shown it well enough.
  int32_t WarmCalls(int64_t check_ns) const;

  // Gives each choice the calls of a short sample.
  void Shorten(std::span<RacingChoice> choices) const;
  // Returns true if a sample of a choice that still races has at most half of the calls that fill
  // a sample, by the time of a call in its samples. Others are nearly as good as full ones.
  bool HasShortSamples(std::span<const RacingChoice> choices, const Race& race) const;
  // Gives each choice that still races the calls that fill a sample, and returns true; or does
  // nothing and returns false if there are no short samples.
  bool Lengthen(std::span<RacingChoice> choices, const Race& race) const;

  // Raises the repetitions of every choice of this round whose sample shows that there are too few
  // of them, for example because a processor was busy during calibration. Clears its samples, also
  // that of this round: they had neither the caches nor the overlap of calls in a row that those of
  // other choices have. order: indices into choices; times_ns: as Race::AddRound takes them.
  void RemeasureUndersampled(const std::vector<size_t>& order, std::vector<int64_t>& times_ns,
                             std::span<RacingChoice> choices, Race& race) const;

 private:
  // False: they are right, or many anyway.
  bool RaiseRepetitions(RacingChoice& choice, int64_t time_ns, bool is_short) const;

  int64_t sample_ns_;
  int32_t copies_;
  MemoryKind memory_;
};

// Collective: times a few calls in a row of a choice that has passed its check.
class Calibration {
 public:
  Calibration(const SampleRepetitions& repetitions, CellSteps& steps, ChoiceRuns& runs,
              ChoiceRemoval& removal)
      : repetitions_(repetitions), steps_(steps), runs_(runs), removal_(removal) {}

  // Sets the times of warm calls and the repetitions of the choice. One that fails is removed.
  Status Run(RacingChoice& choice);

 private:
  const SampleRepetitions& repetitions_;
  CellSteps& steps_;
  ChoiceRuns& runs_;
  ChoiceRemoval& removal_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CALIBRATION_H_
