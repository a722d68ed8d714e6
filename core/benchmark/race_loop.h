// Measures the rounds of a cell's race on all ranks.
#ifndef COTUNE_CORE_BENCHMARK_RACE_LOOP_H_
#define COTUNE_CORE_BENCHMARK_RACE_LOOP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/calibration.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/race.h"
#include "core/benchmark/racing_choice.h"
#include "core/benchmark/start_window.h"

namespace cotune {

// The part of a race in the choice of a cell's winner.
enum class Heat : uint8_t {
  kLast,        // decides
  kFirstOfTwo,  // another race follows, of those that are left and of others
};

// Returns the rules that settings and device give the race of so many choices of a cell. Many
// choices have rounds of short samples first, and these are all of the first heat of two.
RaceRules RulesOfRace(const BenchmarkParts& parts, size_t choices, Heat heat);

// Collective; what it is given outlives it.
class RaceLoop {
 public:
  // window: how the ranks are lined up, here and in races of the cell before and after.
  RaceLoop(const BenchmarkParts& parts, CellSteps& steps, ChoiceRuns& runs, ChoiceRemoval& removal,
           const SampleRepetitions& repetitions, StartWindow& window)
      : parts_(parts),
        steps_(steps),
        runs_(runs),
        removal_(removal),
        repetitions_(repetitions),
        window_(window) {}

  // Races the choices that have not failed and writes samples, times and outcomes into the verdicts
  // of all. The budgets are by the time of the job, from now on; 0: none. Once budget_ns is spent,
  // the race ends when all choices have min_rounds rounds of samples that decide; once
  // total_budget_ns is spent, which all cells share, it ends with the round.
  Status Run(std::span<RacingChoice> choices, const RaceRules& rules, int64_t budget_ns,
             int64_t total_budget_ns = 0);

  // Returns true if the budget ended the race before its choices had min_rounds rounds of samples
  // that decide.
  bool is_cut_short() const { return is_cut_short_; }
  // Returns true if the race ended with short samples, which do not decide.
  bool has_short_samples() const { return has_short_samples_; }

 private:
  // Times of one round in the order given; 0 for a choice that failed. A sample that a rank started
  // late is taken again. StartWindow::Accepts ends that: after some it accepts all.
  Result<std::vector<int64_t>> MeasureRound(std::span<RacingChoice> choices,
                                            const std::vector<size_t>& order);
  void CountSamples(std::span<const RacingChoice> choices, const std::vector<size_t>& order,
                    const std::vector<int64_t>& times_ns);
  // Short samples begin with the release of the ranks, without a common start: the untimed call
  // lines the ranks up well enough.
  int64_t StartDelayNs(const RacingChoice& choice) const;
  // The time of one call out of all ranks' records; 0: it failed, or a rank started late.
  Result<int64_t> TakeSample(RacingChoice& choice, const ExchangedRecords<TakenSample>& all,
                             int64_t planned_start_ns);

  const BenchmarkParts& parts_;
  CellSteps& steps_;
  ChoiceRuns& runs_;
  ChoiceRemoval& removal_;
  const SampleRepetitions& repetitions_;
  StartWindow& window_;
  bool is_qualifying_ = false;  // this round
  bool is_cut_short_ = false;
  bool has_short_samples_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RACE_LOOP_H_
