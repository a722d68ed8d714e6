// The stage driver: the only control flow of a tune.
//
//   choices -> known cells -> precompile -> warm -> pre-sync -> check, benchmark and selection ->
//   agreement -> selection -> table
//
// Deferred mode (V2) adds all nodes and runs the stages once for all of them; immediate mode (V1)
// runs the same stages for each node when it is added.
#ifndef COTUNE_CORE_SCHEDULER_SCHEDULER_H_
#define COTUNE_CORE_SCHEDULER_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/choice/multi_template.h"
#include "core/problem/program.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

class Scheduler {
 public:
  // `agreed` are further fields that must be equal on all ranks. `base` are the winners of the
  // table in force, equal on all ranks, which those of the nodes are merged into size by size.
  Scheduler(const TuneParts& parts, TuningSettings settings, AgreedFields agreed,
            MeasuredWinners base = {});

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

  const std::vector<std::unique_ptr<MultiTemplate>>& nodes() const { return state_.nodes; }

 private:
  Status ResolveNew();

  TuneState state_;
  size_t resolved_nodes_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_SCHEDULER_H_
