#include "tests/simulated/tune_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/backend/temporaries.h"
#include "core/choice/neighbour_pruning.h"
#include "core/database/known_cells.h"
#include "core/events/stage_observer.h"
#include "core/testing/scripted_ranks.h"
#include "fusion/fusion_recipes.h"
#include "sync/wire/wire.pb.h"
#include "tests/simulated/simulated_ranks.h"

namespace cotune {
namespace {

// The watchdog of calls has a thread of its own and acts whenever that runs: by a clock that stands
// still it never does.
class StandingClock final : public Clock {
 public:
  int64_t now_ns() const override { return 0; }
};

// Knows no cell, and counts those in which choices tied, or did not race for what other sizes have
// shown.
class CellCounter final : public KnownCells {
 public:
  CellCounter(int& ties, int& pruned) : ties_(ties), pruned_(pruned) {}
  std::optional<CellResult> Find(const Problem& /*problem*/) override { return std::nullopt; }
  Status Record(const CellResult& cell, const Winner& /*winner*/) override {
    ties_ += std::any_of(cell.verdicts.begin(), cell.verdicts.end(),
                         [](const Verdict& verdict) { return verdict.warm_median_ns > 0; });
    pruned_ += std::any_of(cell.refusals.begin(), cell.refusals.end(), [](const Refusal& refusal) {
      return refusal.reason.starts_with(kNotRaced);
    });
    return {};
  }

 private:
  int& ties_;
  int& pruned_;
};

// One rank from its join to the end of its tune.
class RankOfTune {
 public:
  RankOfTune(const TuneSchedule& schedule, SimulatedRank& rank)
      : tune_(schedule.Of(rank.rank())),
        rank_(rank),
        device_(MakeSimulatedDevice(rank, schedule.aligns_ranks, schedule.cache_bytes)),
        part_hub_(1),
        parts_(part_hub_, 0, {}, "parts"),
        temporaries_(*device_) {
    for (size_t i = 0; i < tune_.backends.size(); ++i) {
      const uint64_t seed = schedule.seed * 64 + static_cast<uint64_t>(rank.rank()) * 2 + i;
      backends_.push_back(
          std::make_unique<SimulatedBackend>(rank, kBackendNames[i], tune_.backends[i], seed));
    }
  }

  Result<TuneOutcome> Run(KnownCells& known) {
    COTUNE_TRY(const std::unique_ptr<RankExchange> exchange, rank_.Join());
    COTUNE_TRY(const auto groups, MakeGroups(*exchange));
    groups->set_program_support({.part_backend = &parts_,
                                 .temporaries = &temporaries_,
                                 .recipes = &recipes_,
                                 .fusion = tune_.settings.fusion});
    StageObserver observer;
    CallWatchdog watchdog(standing_clock_);
    Scheduler scheduler({.exchange = *exchange,
                         .groups = *groups,
                         .device = *device_,
                         .clock = rank_,
                         .observer = observer,
                         .known = &known,
                         .watchdog = &watchdog},
                        tune_.settings, tune_.fields, tune_.base);
    for (const TuneNode& node : tune_.nodes) {
      COTUNE_RETURN_IF_ERROR(scheduler.AddNode(node.program, node.sizes_bytes, 0));
    }
    return scheduler.Resolve();
  }

 private:
  Result<std::unique_ptr<BackendGroups>> MakeGroups(RankExchange& exchange) {
    BackendGroups::Options options;
    options.name = "job";
    for (int rank = 0; rank < rank_.world_size(); ++rank) options.job_ranks.push_back(rank);
    options.deadline_ns = rank_.now_ns() + tune_.settings.warm_timeout_ns;
    std::vector<Backend*> backends;
    for (const auto& backend : backends_) backends.push_back(backend.get());
    return BackendGroups::Create(backends, exchange, rank_, options);
  }

  const TuneOfRank& tune_;
  SimulatedRank& rank_;
  const StandingClock standing_clock_;
  const std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<SimulatedBackend>> backends_;
  // It runs the parts of programs, which need no other rank.
  HubForTest part_hub_;
  BackendForTest parts_;
  Temporaries temporaries_;
  const FusionRecipes recipes_;
};

}  // namespace

TuneRun RunTune(const TuneSchedule& schedule) {
  TuneRun run;
  run.outcomes.resize(static_cast<size_t>(schedule.job.world_size));
  std::vector<size_t> passes(run.outcomes.size());
  bool has_proposed = false;
  SimulatedRanks* all = nullptr;
  CellCounter counter(run.broken_ties, run.pruned_cells);  // rank 0 alone records cells
  const auto body = [&](SimulatedRank& rank) {
    run.outcomes[static_cast<size_t>(rank.rank())] = RankOfTune(schedule, rank).Run(counter);
  };
  const auto before_call = [&](SimulatedRank& rank, const sync::CallAsked& call) {
    const bool is_pre_sync = call.arrive.kind() == wire::CALL_PRE_SYNC;
    size_t& pass = passes[static_cast<size_t>(rank.rank())];
    if (is_pre_sync && pass++ == schedule.late_pass && rank.rank() == schedule.late_rank) {
      rank.Work(schedule.late_ns);
    }
    if (call.arrive.kind() != wire::CALL_AGREE || rank.rank() != 0) return;
    if (std::exchange(has_proposed, true)) return;
    for (sync::SimulatedFault fault : schedule.faults_at_agreement) {
      fault.at_ns += all->NowNs(rank);
      all->AddFault(fault);
    }
  };
  SimulatedRanks ranks(schedule.job, body, before_call);
  all = &ranks;
  run.all_ended = ranks.Run();
  for (size_t rank = 0; rank < run.outcomes.size(); ++rank) {
    if (!ranks.has_ended(static_cast<int>(rank))) run.outcomes[rank].reset();
  }
  run.calls = ranks.calls();
  run.network = ranks.network();
  return run;
}

}  // namespace cotune
