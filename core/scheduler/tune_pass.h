// One run through the stages of a tune.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_PASS_H_
#define COTUNE_CORE_SCHEDULER_TUNE_PASS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/backend/symmetric_region.h"
#include "core/scheduler/processor_watch.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

// For the nodes [first, nodes.size()) of the state, which outlives it. Collective.
class TunePass {
 public:
  TunePass(TuneState& state, size_t first);
  TunePass(const TunePass&) = delete;
  TunePass& operator=(const TunePass&) = delete;
  ~TunePass();

  Status Run();

 private:
  // The threads that share short work on all cells of this rank.
  size_t ThreadsOfRank() const;
  void ListChoices();
  // Logs what a list has, and what it leaves out. By rank 0: the lists of all ranks are equal.
  void LogListing(const MultiTemplate& node, uint64_t hint_bytes, const ChoiceList& list) const;
  // Parts the cells into those that rank 0 knows, those that forced choices run, and those to
  // measure, without the choices that have ended a tune.
  Status LookUpKnownCells();
  void LeaveOut(const std::vector<LeftOutChoice>& left_out);
  void Plan();
  // Memory for the operands of all symmetric cells, where there are any.
  Status MakeSymmetricRegion();
  Status Precompile();
  // Returns tasks that evaluate the right results of the cells, and gives the cells what they fill.
  std::vector<std::function<void()>> EvaluationsOfCells();
  Status Warm();
  // False: ranks missed the window.
  Result<bool> PreSync();
  Result<bool> MeetInWindow();
  // Compares the choices that the ranks list for all cells, and checks that each rank can run the
  // winners of the known ones.
  Status CheckChoices();
  Status Benchmark();
  // The cells of all nodes, known ones too, in the order in which they are measured: the first
  // sizes of every node, then the others.
  std::vector<CellPlace> PlacesInOrder() const;
  bool IsForced(const CellPlace& place) const {
    return std::find(forced_.begin(), forced_.end(), place) != forced_.end();
  }
  // Adds the winners of the nodes to those in force.
  MeasuredWinners MergedWinners();
  Status Agree();

  int64_t WarmDeadlineNs() const { return parts_.clock.now_ns() + settings_.warm_timeout_ns; }
  void Warn(const std::string& text) { EmitLine(parts_.observer, Severity::kWarning, text); }

  TuneState& state_;
  const TuneParts& parts_;
  const TuningSettings& settings_;
  const size_t first_;
  std::optional<CallWatchdog> own_watchdog_;
  CallWatchdog& watchdog_;
  ProcessorWatch processors_{state_};
  Status memory_;  // of this rank, for the plan
  std::vector<TuneCell> cells_;
  std::vector<CellPlace> known_;
  // Not known, and not measured, because each collective has a forced choice; in the order of the
  // cells.
  std::vector<CellPlace> forced_;
  std::set<CellPlace> unusable_;  // known, but no rank can run the winner
  std::unique_ptr<SymmetricRegion> symmetric_;
  StartMode start_mode_ = StartMode::kBarrier;
  int64_t begin_ns_ = 0;  // from the job's begin to that of measuring
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_PASS_H_
