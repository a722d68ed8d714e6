// Measures one cell on all ranks at the same moment: correctness first, then the race.
#ifndef COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_
#define COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/device.h"
#include "core/backend/launch_watchdog.h"
#include "core/base/clock.h"
#include "core/benchmark/operand_buffers.h"
#include "core/benchmark/race.h"
#include "core/choice/choice_caller.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"
#include "core/ranks/step_record.h"
#include "core/selection/stage_observer.h"
#include "core/selection/verdict.h"

namespace cotune {

// What every cell of a tune is measured with. All of it outlives the benchmark.
struct BenchmarkParts {
  RankExchange& exchange;
  BackendGroups& groups;
  Device& device;
  const Clock& clock;
  StageObserver& observer;
  LaunchWatchdog& watchdog;
  const TuningSettings& settings;
  StartMode start_mode = StartMode::kBarrier;
  SymmetricRegion* symmetric = nullptr;  // for cells with symmetric buffers
  // Resets every caller of this member, also those of other cells: its group is about to be made
  // anew.
  std::function<void(BackendMember&)> reset_callers;
  // Called in front of the first launch of a choice in this cell, and with nullptr when all have
  // been launched once: what is known should this be the last that is heard of the tune.
  std::function<void(const Problem&, const ChoiceId*)> note_attempt = nullptr;
};

// Collective: every rank measures the same cell with callers of the same choices in the same order,
// and gets the same result. Every rank takes part in every step whatever happened to it: a failure
// is a record like any other, and the choice is dropped on all ranks.
class CellBenchmark {
 public:
  // budget_ns: measuring time of this cell by the coordinator's clock, 0: none. `label` starts the
  // names of its steps.
  CellBenchmark(const BenchmarkParts& parts, std::span<const std::unique_ptr<ChoiceCaller>> callers,
                std::string label, int64_t budget_ns);

  // kRankLost: a rank was lost; kEnvironment: a rank has no memory for the buffers. Failures of
  // choices are verdicts.
  Result<CellResult> Run(const Problem& problem);

  // The coordinator's clock at the last step.
  int64_t coordinator_now_ns() const { return coordinator_now_ns_; }

 private:
  // One choice as it goes through the stages.
  struct Entrant {
    ChoiceCaller* caller = nullptr;
    Verdict verdict;
    CallSubject subject;   // for the watchdog
    bool in = true;        // has not failed
    int64_t check_ns = 0;  // one call on the slowest rank
    int64_t call_ns = 0;   // the same in a row, when the repetitions were chosen
    // Calls for samples, and how many they are; made when first needed.
    std::unique_ptr<TimedCalls> timed;
    int32_t timed_repetitions = 0;
  };
  // How a call is made for a check: as a program makes it, or as samples are taken.
  enum class CheckBy { kCall, kTimedCalls };
  // The records of one timed step and when it was to start.
  struct TimedStep {
    ExchangedRecords all;
    int64_t planned_start_ns = 0;
  };

  Status AllocateBuffers();
  Status DropUnprepared();
  Status Check(Entrant& entrant, CheckBy by);
  StepRecord CheckOnThisRank(Entrant& entrant, CheckBy by, uint32_t salt);
  int32_t CallsOf(int64_t call_ns) const;  // of one sample
  Status SetRepetitions(Entrant& entrant);
  // Where a sample of few calls has shown that there should have been more, as after a processor
  // was away when their number was chosen, there will be. False: they are right, or many anyway.
  bool GiveMoreRepetitions(Entrant& entrant, int64_t time_ns) const;
  // The samples so far of those that get more do not count, nor does this one: they had neither the
  // caches nor the overlap of calls in a row that those of other choices have.
  void MeasureAnewWhatHadTooFewCalls(const std::vector<size_t>& order,
                                     std::vector<int64_t>& times_ns, Race& race);
  Status RunRace(CellResult& result);
  // How fast the ranks' devices ran, where they say it.
  Status NoteClocks(CellResult& result);
  Status RecheckWinner(CellResult& result);
  // Times of one round in the order given; 0 for a choice that failed or a sample of which a rank
  // started late.
  Result<std::vector<int64_t>> MeasureRound(const std::vector<size_t>& order, CellResult& result);
  // From the release of the ranks to the common start of a sample; the same on all ranks.
  int64_t StartDelayNs(const Entrant& entrant) const;
  // The time of one call out of all ranks' records; 0 as above.
  Result<int64_t> TakeSample(Entrant& entrant, const ExchangedRecords& all,
                             int64_t planned_start_ns, CellResult& result);
  // Runs `calls` with this rank guarded against a launch that does not end; a failure aborts the
  // group.
  StepRecord RunGuarded(Entrant& entrant,
                        const std::function<Result<TimedSpan>(const LaunchArguments&)>& calls);
  StepRecord CallOnce(Entrant& entrant);
  StepRecord Measure(Entrant& entrant, int32_t repetitions, int64_t start_ns);
  Result<ExchangedRecords> Exchange(std::string_view step, const StepRecord& record,
                                    int64_t start_delay_ns);
  // Takes a choice out on all ranks and, when a launch failed, makes its backend's group anew.
  Status Drop(Entrant& entrant, Outcome outcome, const std::string& reason);
  // The same for what ranks say of a launch; an error when one of them has given it up because the
  // user wants to stop.
  Status DropFailed(Entrant& entrant, const ExchangedRecords& all, const Error& failure);
  void NoteAttempt(const Entrant* entrant);
  LaunchArguments Arguments() const;
  // Those of timed calls: on each copy of the operands in turn.
  std::vector<LaunchArguments> TimedArguments(const LaunchArguments& arguments) const;

  BenchmarkParts parts_;
  std::vector<Entrant> entrants_;
  std::string label_;
  int64_t budget_ns_;
  Problem problem_;
  std::unique_ptr<OperandBuffers> buffers_;
  std::optional<DeviceClocks> clocks_before_;  // of this rank
  bool some_know_clocks_ = false;              // over all ranks
  Status copies_added_;  // on this rank; the others learn of it at the next step
  int64_t coordinator_now_ns_ = 0;
  int64_t window_ns_;
  uint32_t step_count_ = 0;
  uint32_t checks_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_
