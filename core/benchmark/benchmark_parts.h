// The parts that every cell of a tune is measured with.
#ifndef COTUNE_CORE_BENCHMARK_BENCHMARK_PARTS_H_
#define COTUNE_CORE_BENCHMARK_BENCHMARK_PARTS_H_

#include <functional>
#include <memory>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/base/clock.h"
#include "core/benchmark/reference_results.h"
#include "core/benchmark/start_window.h"
#include "core/events/stage_observer.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"
#include "core/selection/verdict.h"

namespace cotune {

// All of it outlives the benchmark of a cell and its stages.
struct BenchmarkParts {
  RankExchange& exchange;
  BackendGroups& groups;
  Device& device;
  const Clock& clock;
  StageObserver& observer;
  CallWatchdog& watchdog;
  const TuningSettings& settings;
  StartMode start_mode = StartMode::kBarrier;
  int64_t start_window_ns = StartWindow::kFirstWindowNs;  // before the first sample
  SymmetricRegion* symmetric = nullptr;                   // for cells with symmetric buffers
  // The right results of the cell's program, as in CellOperands::Allocate.
  std::shared_ptr<ReferenceResults> reference = nullptr;
  // Resets every caller of this member, also those of other cells: its group is about to be made
  // anew.
  std::function<void(BackendMember&)> reset_callers;
  // Called in front of the first launch of a choice in this cell, and with nullptr when all have
  // been launched once: the journal names the choice if this launch ends the process.
  std::function<void(const Problem&, const ChoiceId*)> note_attempt = nullptr;

  // The deadline of a call or of a local step that begins now.
  int64_t CallDeadlineNs() const {
    return clock.now_ns() + settings.collective_autotune_timeout_ns;
  }
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_BENCHMARK_PARTS_H_
