#include "core/testing/cell_on_ranks.h"

#include <thread>
#include <utility>

#include "core/backend/call_watchdog.h"
#include "core/problem/program.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

class StopsWhenAsked final : public StageObserver {
 public:
  explicit StopsWhenAsked(bool stop) : stop_(stop) {}
  bool StopRequested() override { return stop_; }

 private:
  const bool stop_;
};

void RunOnRank(const CellScript& script, HubForTest& hub, int rank,
               const std::function<void(CellOnRank&)>& body) {
  const MonotonicClock clock;
  const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
  BackendForTest backend(hub, rank, script.choices);
  DeviceScript device_script = script.device ? script.device(rank) : DeviceScript{};
  device_script.job_begin_ns = JobBeginForTest(rank);
  const std::unique_ptr<Device> device = MakeDeviceForTest(device_script);
  StopsWhenAsked observer(script.stop_requested && script.stop_requested(rank));
  CallWatchdog watchdog(clock);
  BackendGroups::Options options;
  options.name = "job";
  for (int i = 0; i < script.world_size; ++i) options.job_ranks.push_back(i);
  auto groups = BackendGroups::Create({&backend}, *exchange, clock, options);
  ASSERT_TRUE(groups.has_value()) << groups.error().ToText();

  Problem problem;
  problem.cls.collective = script.collective;
  problem.cls.reduction = script.reduction;
  problem.cls.in_place = script.in_place;
  problem.cls.world_size = problem.cls.ranks_per_node = script.world_size;
  problem.count = script.count;
  const Program program = *Program::SingleCollective(problem.cls);
  std::vector<std::unique_ptr<ChoiceCaller>> callers;
  for (const Choice& choice : backend.ListChoices(program, problem).choices) {
    callers.push_back(std::make_unique<ChoiceCaller>(
        program, problem, choice,
        std::vector<BackendMember*>{(*groups)->Find(choice.id.backend())}));
  }
  const BenchmarkParts parts{.exchange = *exchange,
                             .groups = **groups,
                             .device = *device,
                             .clock = clock,
                             .observer = observer,
                             .watchdog = watchdog,
                             .settings = script.settings,
                             .start_mode = script.start_mode,
                             .reset_callers = [&](BackendMember&) {
                               for (const auto& caller : callers) caller->Reset();
                             }};
  std::vector<RacingChoice> choices = RacingChoicesOf(callers);
  CellSteps steps(parts, "cell");
  CellOnRank cell{parts, program, problem, choices, steps, backend};
  body(cell);
}

}  // namespace

ScriptedChoice ChoiceOfCost(std::string name, int64_t cost_ns) {
  ScriptedChoice choice;
  choice.name = std::move(name);
  choice.cost_ns = [cost_ns](uint64_t) { return cost_ns; };
  return choice;
}

void RunOnRanks(const CellScript& script, const std::function<void(CellOnRank&)>& body) {
  HubForTest hub(script.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < script.world_size; ++rank) {
    threads.emplace_back([&, rank] { RunOnRank(script, hub, rank, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunOnPreparedRanks(const CellScript& script,
                        const std::function<void(PreparedCellOnRank&)>& body) {
  RunOnRanks(script, [&](CellOnRank& cell) {
    Result<PreparedCell> prepared =
        Preparation(cell.parts, cell.program, cell.problem, cell.steps).Run(cell.choices);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().ToText();
    ChoiceRuns runs(cell.parts, cell.problem, *prepared->buffers, cell.steps,
                    prepared->buffers->copies());
    ChoiceRemoval removal(cell.parts, cell.problem, cell.choices);
    PreparedCellOnRank with_buffers{cell, *prepared, runs, removal};
    body(with_buffers);
    for (RacingChoice& choice : cell.choices) choice.timed.reset();  // before the buffers
  });
}

CellResult RacedCell(const PreparedCellOnRank& cell, const std::vector<int64_t>& times_ns) {
  CellResult result;
  result.problem = cell.problem;
  for (size_t i = 0; i < times_ns.size(); ++i) {
    Verdict verdict = cell.choices[i].verdict;
    verdict.samples_ns.assign(8, times_ns[i]);
    verdict.median_ns = verdict.interval_low_ns = verdict.interval_high_ns = times_ns[i];
    result.verdicts.push_back(std::move(verdict));
  }
  return result;
}

}  // namespace cotune
