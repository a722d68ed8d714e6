// The input of a tune, and the results of its passes.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_STATE_H_
#define COTUNE_CORE_SCHEDULER_TUNE_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/base/processor_times.h"
#include "core/benchmark/start_window.h"
#include "core/choice/multi_template.h"
#include "core/choice/precompile.h"
#include "core/database/known_cells.h"
#include "core/events/stage_observer.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/measured_winners.h"

namespace cotune {

// All of it outlives the scheduler; known may be nullptr.
struct TuneParts {
  RankExchange& exchange;
  BackendGroups& groups;
  Device& device;
  const Clock& clock;
  StageObserver& observer;
  KnownCells* known = nullptr;
  CallWatchdog* watchdog = nullptr;                       // of the job; nullptr: one of its own
  std::shared_ptr<PrepareNotes> prepare_notes = nullptr;  // of this rank; nullptr: none
  // ReadProcessorTimes, on all ranks or on none; nullptr: cells are not judged by their steadiness.
  std::function<std::optional<ProcessorTimes>()> processor_times = nullptr;
};

// How a tune ended; equal on all ranks.
struct TuneOutcome {
  bool committed = false;       // false: every rank keeps the table that it had
  std::vector<int> late_ranks;  // not committed because these missed the pre-sync window
  // Holds the winners that the scheduler began with and those of all nodes resolved so far: the
  // ranks have agreed on it, and on nothing else. Empty when not committed.
  DispatchTable table;
  MeasuredWinners winners;
  std::vector<Refusal> backend_refusals;
  int32_t measured_cells = 0;  // without those in which no choice could be timed
  int32_t known_cells = 0;
  int32_t skipped_cells = 0;  // not measured because the budget was used up
  int32_t forced_cells = 0;   // not measured because force_choice decides them
  // Measured cells whose times were unsteady; they run the default.
  int32_t unsteady_cells = 0;
  int32_t pre_syncs = 0;
  int64_t pre_sync_ns = 0;  // spent in them by this rank
};

// The state that the passes of one scheduler share.
struct TuneState {
  TuneParts parts;
  TuningSettings settings;
  AgreedFields agreed;
  std::vector<std::unique_ptr<MultiTemplate>> nodes{};
  MeasuredWinners winners{};
  TuneOutcome outcome{};
  int64_t measured_ns = 0;  // of the budget, by the time of the job; equal on all ranks
  bool has_warned_of_late_ranks = false;
  // False once the times of this rank's processors have turned out to stand still.
  bool has_advancing_times = true;
  // From the release of the ranks to the start of the next sample; equal on all ranks. Cells share
  // it, so that each does not begin with the long one.
  int64_t start_window_ns = StartWindow::kFirstWindowNs;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_STATE_H_
