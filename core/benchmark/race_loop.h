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
  kOnly,
  kFirstOfTwo,   // another race follows, of those that are left and of others
  kSecondOfTwo,  // most of its choices are those that qualified in the first
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
  // Returns true if the race ended with samples that do not decide: short ones, or those of fewer
  // than min_rounds rounds that only qualify choices.
  bool has_short_samples() const { return has_short_samples_; }

 private:
  // A sample of the round in progress.
  struct Turn {
    size_t at = 0;          // in the order of the round
    size_t choice = 0;      // its index
    int64_t begins_ns = 0;  // after the first of its batch
  };
  struct FailedTurn {
    Turn turn;
    Error failure;
  };
  // Samples that follow each other without a step between them.
  using Batch = std::vector<Turn>;

  // Times of one round in the order given; 0 for a choice that failed. A sample that a rank started
  // late is taken again. StartWindow::Accepts ends that: after some it accepts all.
  Result<std::vector<int64_t>> MeasureRound(std::span<RacingChoice> choices,
                                            const std::vector<size_t>& order);
  // Takes the next batch out of `left`, those turns of the round that have no time yet.
  Batch NextBatch(std::span<const RacingChoice> choices, std::vector<Turn>& left) const;
  // Meets the other ranks before the batch is taken, which may be empty, with the record of the one
  // before.
  Result<ExchangedRecords<TakenSamples>> MeetBefore(const Batch& batch,
                                                    std::span<const RacingChoice> choices,
                                                    const StepRecord<TakenSamples>& record);
  // This rank's samples, up to the first that fails. It aborts the groups of the choices after it,
  // because other ranks may wait for this one in any of them.
  StepRecord<TakenSamples> TakeBatch(std::span<RacingChoice> choices, const Batch& batch,
                                     int64_t planned_start_ns);
  // Writes the times of the batch and returns the turns to take again: samples that a rank started
  // late, or that failed for another one. Removes the choice that failed first by itself.
  Result<std::vector<Turn>> FinishBatch(std::span<RacingChoice> choices, const Batch& batch,
                                        const ExchangedRecords<TakenSamples>& all,
                                        int64_t planned_start_ns, std::vector<int64_t>& times_ns);
  // Makes the samples of the calibration the first round of a race that begins with short samples.
  // They have up to 16 calls, by the time of the check. A choice whose calls are long has none.
  void AddCalibrations(std::span<RacingChoice> choices, Race& race);
  void CountSamples(std::span<const RacingChoice> choices, const std::vector<size_t>& order,
                    const std::vector<int64_t>& times_ns);
  // The expected time of a call: of the fastest sample, or as calibration has left it.
  int64_t CallNs(std::span<const RacingChoice> choices, size_t index) const;
  // The expected time of the call that is not timed, before the start of a sample; 0: it has none.
  int64_t UntimedNs(std::span<const RacingChoice> choices, size_t index) const;

  const BenchmarkParts& parts_;
  CellSteps& steps_;
  ChoiceRuns& runs_;
  ChoiceRemoval& removal_;
  const SampleRepetitions& repetitions_;
  StartWindow& window_;
  // Samples of a round of qualifying begin with the release of the ranks, without a common start:
  // the untimed call lines the ranks up well enough.
  bool is_qualifying_ = false;       // this round
  std::vector<int64_t> fastest_ns_;  // a call in the samples of each choice; 0: there are none
  bool is_cut_short_ = false;
  bool has_short_samples_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RACE_LOOP_H_
