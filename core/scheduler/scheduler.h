// The stage driver: the only control flow of a tune.
//
//   choices -> known cells -> precompile -> warm -> pre-sync -> check and benchmark -> agreement ->
//   selection -> table
//
// Deferred mode (V2) adds all nodes and runs the stages once for all of them; immediate mode (V1)
// runs the same stages for each node when it is added.
#ifndef COTUNE_CORE_SCHEDULER_SCHEDULER_H_
#define COTUNE_CORE_SCHEDULER_SCHEDULER_H_

#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/device.h"
#include "core/backend/launch_watchdog.h"
#include "core/base/clock.h"
#include "core/choice/multi_template.h"
#include "core/choice/precompile.h"
#include "core/database/known_cells.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/measured_winners.h"
#include "core/selection/stage_observer.h"

namespace cotune {

// How a tune ended; equal on all ranks.
struct TuneOutcome {
  bool committed = false;       // false: every rank keeps the table that it had
  std::vector<int> late_ranks;  // not committed because these missed the pre-sync window
  // Holds the winners that the scheduler began with and those of all nodes resolved so far: the
  // ranks have agreed on it, and on nothing else. Empty when not committed.
  DispatchTable table;
  MeasuredWinners winners;
  std::vector<Refusal> backend_refusals;
  int32_t measured_cells = 0;
  int32_t known_cells = 0;
  int32_t skipped_cells = 0;  // not measured because the budget was used up
  int32_t pre_syncs = 0;
  int64_t pre_sync_ns = 0;  // spent in them by this rank
};

class Scheduler {
 public:
  // All of it outlives the scheduler; known may be nullptr. `agreed` are further fields that must
  // be equal on all ranks. `base` are the winners of the table in force, equal on all ranks, which
  // those of the nodes are merged into size by size.
  struct Parts {
    RankExchange& exchange;
    BackendGroups& groups;
    Device& device;
    const Clock& clock;
    StageObserver& observer;
    KnownCells* known = nullptr;
    LaunchWatchdog* watchdog = nullptr;                     // of the job; nullptr: one of its own
    std::shared_ptr<PrepareNotes> prepare_notes = nullptr;  // of this rank; nullptr: none
  };
  Scheduler(Parts parts, TuningSettings settings, AgreedFields agreed, MeasuredWinners base = {});
  ~Scheduler();

  // Adds a node; collective: the same nodes in the same order on every rank. size_hints_bytes
  // empty: settings.collective_multi_kernel_hints_bytes. In immediate mode it is resolved at once.
  // kUsage for a program whose group shape is not that of the exchange or when there is no size
  // hint.
  Status AddNode(Program program, std::vector<uint64_t> size_hints_bytes, uint64_t topology_digest);

  // Resolves every node that is not resolved; collective. kDisagreement: the ranks differ in nodes,
  // settings or choices, or one cannot run a winner that another rank or the database has; all of
  // them decline. kRankLost: a rank was lost; this rank may not know whether the others have
  // committed. In immediate mode it only gives the outcome.
  Result<TuneOutcome> Resolve();

  const std::vector<std::unique_ptr<MultiTemplate>>& nodes() const;

 private:
  class Pass;  // one run through the stages
  Status ResolveNew();

  Parts parts_;
  TuningSettings settings_;
  AgreedFields agreed_;
  std::vector<std::unique_ptr<MultiTemplate>> nodes_;
  size_t resolved_nodes_ = 0;
  MeasuredWinners winners_;
  TuneOutcome outcome_;
  int64_t measured_ns_ = 0;  // of the budget, by the coordinator's clock; equal on all ranks
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_SCHEDULER_H_
