// The stage driver: the only control flow of a tune.
//
//   choices -> known cells -> precompile -> warm -> pre-sync -> check and benchmark -> agreement ->
//   selection -> table
//
// Deferred mode (V2) adds all nodes and runs the stages once for all of them; immediate mode (V1)
// runs the same stages for each node when it is added.
#ifndef COTUNE_CORE_SCHEDULER_H_
#define COTUNE_CORE_SCHEDULER_H_

#include <memory>
#include <optional>
#include <vector>

#include "core/backend_groups.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/dispatch_table.h"
#include "core/known_cells.h"
#include "core/launch_watchdog.h"
#include "core/multi_template.h"
#include "core/rank_exchange.h"
#include "core/stage_observer.h"
#include "core/tuning_settings.h"

namespace cotune {

// How a tune ended; equal on all ranks.
struct TuneOutcome {
  bool committed = false;       // false: every rank keeps the default table
  std::vector<int> late_ranks;  // not committed because these missed the pre-sync window
  DispatchTable table;          // of all nodes resolved so far; empty when not committed
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
  // be equal on all ranks.
  struct Parts {
    RankExchange& exchange;
    BackendGroups& groups;
    Device& device;
    const Clock& clock;
    StageObserver& observer;
    KnownCells* known = nullptr;
    LaunchWatchdog* watchdog = nullptr;  // of the job; nullptr: one of its own
  };
  Scheduler(Parts parts, TuningSettings settings, AgreedFields agreed);
  ~Scheduler();

  // Adds a node; collective: the same nodes in the same order on every rank. size_hints_bytes
  // empty: settings.collective_multi_kernel_hints_bytes. In immediate mode it is resolved at once.
  // kUsage for a program whose group shape is not that of the exchange or when there is no size
  // hint.
  Status AddNode(Program program, std::vector<uint64_t> size_hints_bytes, uint64_t topology_digest);

  // Resolves every node that is not resolved; collective. kRankLost: a rank was lost, nothing was
  // committed since the last outcome. In immediate mode it only gives the outcome.
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
  std::vector<DispatchRow> rows_;
  TuneOutcome outcome_;
  int64_t measured_ns_ = 0;  // of the budget, by the coordinator's clock; equal on all ranks
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_H_
