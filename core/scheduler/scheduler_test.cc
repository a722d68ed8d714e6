#include "core/scheduler/scheduler.h"

#include <thread>

#include "core/testing/scripted_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ProblemClass AllReduce(int world_size) {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  cls.world_size = world_size;
  cls.ranks_per_node = world_size;
  return cls;
}

ScriptedChoice Scripted(std::string name, int64_t cost_ns) {
  ScriptedChoice choice;
  choice.name = std::move(name);
  choice.cost_ns = [cost_ns](uint64_t) { return cost_ns; };
  return choice;
}

class WarningsForTest final : public StageObserver {
 public:
  void OnWarning(std::string_view text) override { warnings.emplace_back(text); }
  void OnPlan(const TunePlan& plan) override { plans.push_back(plan); }
  std::vector<std::string> warnings;
  std::vector<TunePlan> plans;
};

class MemoryOfCells final : public KnownCells {
 public:
  std::optional<CellResult> Find(const Problem& problem, uint64_t) override {
    const auto found = cells.find(problem);
    if (found == cells.end()) return std::nullopt;
    return found->second;
  }
  Status Record(const CellResult& cell, const Winner&) override {
    cells.insert_or_assign(cell.problem, cell);
    return {};
  }
  std::vector<LeftOutChoice> Begin() override { return left_out; }
  std::map<Problem, CellResult> cells;
  std::vector<LeftOutChoice> left_out;
};

// What one rank saw of a tune.
struct RankView {
  Result<TuneOutcome> outcome = Fail(ErrorCode::kInternal, "did not run");
  WarningsForTest observer;
  std::vector<CellResult> cells;
  int groups_created = 0;
  int plans_prepared = 0;
  size_t recv_buffers = 0;  // distinct ones that calls were given
};

struct Tune {
  int world_size = 2;
  TuningSettings settings;
  std::function<std::vector<ScriptedChoice>(int rank)> choices;
  std::vector<std::vector<uint64_t>> node_sizes = {{1024}};
  std::set<int> late_ranks;
  KnownCells* known = nullptr;
  std::function<void(int rank, TuningSettings&)> change_settings;
  BufferClass buffer_class = BufferClass::kPlain;
  int register_fails_on_rank = -1;
  std::function<DeviceScript(int rank)> device;
  MeasuredWinners base;
};

std::vector<RankView> RunTune(const Tune& tune, int* pre_syncs = nullptr) {
  HubForTest hub(tune.world_size);
  hub.late_ranks = tune.late_ranks;
  std::vector<RankView> views(tune.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < tune.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      RankView& view = views[rank];
      const MonotonicClock clock;
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest backend(hub, rank, tune.choices(rank));
      backend.register_fails_on_rank = tune.register_fails_on_rank;
      const std::unique_ptr<Device> device =
          MakeDeviceForTest(tune.device ? tune.device(rank) : DeviceScript{});
      BackendGroups::Options options;
      options.name = "job";
      for (int i = 0; i < tune.world_size; ++i) options.job_ranks.push_back(i);
      auto groups = BackendGroups::Create({&backend}, *exchange, options);
      ASSERT_TRUE(groups.has_value()) << groups.error().ToText();
      TuningSettings settings = tune.settings;
      if (tune.change_settings) tune.change_settings(rank, settings);
      Scheduler scheduler({*exchange, **groups, *device, clock, view.observer, tune.known},
                          settings, {}, tune.base);
      for (const auto& sizes : tune.node_sizes) {
        ProblemClass cls = AllReduce(tune.world_size);
        cls.in_place = &sizes != &tune.node_sizes[0];
        cls.buffer_class = tune.buffer_class;
        const Status added = scheduler.AddNode(*Program::SingleCollective(cls), sizes, 7);
        if (!added) {
          view.outcome = tl::make_unexpected(added.error());
          return;
        }
      }
      view.outcome = scheduler.Resolve();
      for (const auto& node : scheduler.nodes()) {
        for (const auto& [bytes, decided] : node->cells()) {
          view.cells.push_back(decided.cell);
        }
      }
      EXPECT_EQ(backend.registered_bytes, 0u) << "memory of a tune is given back";
      view.groups_created = backend.groups_created;
      view.plans_prepared = backend.plans_prepared;
      view.recv_buffers = backend.recv_buffers.size();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (pre_syncs != nullptr) *pre_syncs = hub.pre_syncs;
  return views;
}

const Verdict& VerdictOf(const CellResult& cell, const std::string& name) {
  for (const Verdict& verdict : cell.verdicts) {
    if (verdict.id.text() == "scripted/" + name) return verdict;
  }
  ADD_FAILURE() << "no verdict of " << name;
  return cell.verdicts.front();
}

std::string WinnerAt(const TuneOutcome& outcome, uint64_t bytes, int world_size,
                     bool in_place = false) {
  ProblemClass cls = AllReduce(world_size);
  cls.in_place = in_place;
  const int32_t index = outcome.table.Lookup(DispatchKey::Of(cls), bytes);
  return index == DispatchTable::kNoChoice ? "" : outcome.table.choices()[index].text();
}

TEST(SchedulerTest, TheFastestChoiceOfEachSizeWinsOnAllRanks) {
  Tune tune;
  tune.world_size = 3;
  tune.choices = [](int) {
    ScriptedChoice latency = Scripted("latency", 0);
    latency.cost_ns = [](uint64_t bytes) { return 10'000 + static_cast<int64_t>(bytes) * 4; };
    ScriptedChoice bandwidth = Scripted("bandwidth", 0);
    bandwidth.cost_ns = [](uint64_t bytes) { return 50'000 + static_cast<int64_t>(bytes); };
    ScriptedChoice slow = Scripted("slow", 900'000);
    slow.is_default = true;
    return std::vector<ScriptedChoice>{slow, latency, bandwidth};
  };
  tune.node_sizes = {{1024, 4096, 65536, 262144}};
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->measured_cells, 4);
    EXPECT_EQ(view.outcome->table.Serialize(), views[0].outcome->table.Serialize());
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 3), "scripted/latency");
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 3), "scripted/latency");
    EXPECT_EQ(WinnerAt(*view.outcome, 65536, 3), "scripted/bandwidth");
    EXPECT_EQ(WinnerAt(*view.outcome, 1 << 30, 3), "scripted/bandwidth");
    ASSERT_EQ(view.cells.size(), 4u);
    EXPECT_EQ(VerdictOf(view.cells[0], "latency").median_ns, 10'000 + 1024 * 4);
  }
}

TEST(SchedulerTest, ImmediateAndDeferredModeFindTheSameWinners) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice a = Scripted("a", 30'000);
    a.is_default = true;
    a.noise_ns = 100;
    ScriptedChoice b = Scripted("b", 20'000);
    b.noise_ns = 300;
    return std::vector<ScriptedChoice>{a, b, Scripted("c", 25'000)};
  };
  tune.node_sizes = {{1024}, {2048, 8192}};
  int deferred_syncs = 0;
  const std::vector<RankView> deferred = RunTune(tune, &deferred_syncs);
  tune.settings.enable_collective_multitemplate = false;
  int immediate_syncs = 0;
  const std::vector<RankView> immediate = RunTune(tune, &immediate_syncs);
  ASSERT_TRUE(deferred[0].outcome.has_value());
  ASSERT_TRUE(immediate[0].outcome.has_value());
  EXPECT_EQ(deferred[0].outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
  EXPECT_EQ(WinnerAt(*deferred[0].outcome, 1024, 2), "scripted/b");
  EXPECT_EQ(deferred_syncs, 1);
  EXPECT_EQ(immediate_syncs, 2);
  EXPECT_EQ(deferred[0].outcome->pre_syncs, 1);
  EXPECT_EQ(immediate[0].outcome->pre_syncs, 2);
}

TEST(SchedulerTest, TheDefaultWinsInsideTheNoise) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice usual = Scripted("usual", 100'000);
    usual.is_default = true;
    return std::vector<ScriptedChoice>{usual, Scripted("hair_faster", 99'000)};
  };
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[1].outcome.has_value());
  EXPECT_EQ(WinnerAt(*views[1].outcome, 1024, 2), "scripted/usual");
}

// 16 KiB out of place with guards are 33 KiB: two caches of 128 KiB take 8 of those, and the one
// whose turn it is makes 9.
Tune TuneOnSmallCache() {
  Tune tune;
  tune.node_sizes = {{16384}};
  tune.settings.sample_ns = 200'000;
  tune.device = [](int) { return DeviceScript{std::nullopt, 131072}; };
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 30'000)}; };
  return tune;
}

TEST(SchedulerTest, TimedCallsGoRoundOverCopiesWhereACacheWouldHoldTheBuffers) {
  Tune tune = TuneOnSmallCache();
  tune.choices = [](int) {
    // 6 calls fill a sample of 200 us: 9 are a whole turn. 600 us each: a turn would take too long.
    return std::vector<ScriptedChoice>{Scripted("a", 30'000), Scripted("slow", 600'000)};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.cells.at(0).buffer_copies, 9);
    EXPECT_EQ(view.recv_buffers, 9u);
    EXPECT_EQ(VerdictOf(view.cells[0], "a").repetitions, 9);
    EXPECT_EQ(VerdictOf(view.cells[0], "slow").repetitions, 1);
    // 9 copies and 3 kinds of data of 33792 bytes, and as much for checking on the host.
    EXPECT_EQ(view.observer.plans.at(0).buffer_bytes_per_rank, 13u * 33792);
  }
  tune.node_sizes = {{4096, 131072}};  // hot in programs too; driving itself out
  for (const RankView& view : RunTune(tune)) {
    ASSERT_EQ(view.cells.size(), 2u);
    EXPECT_EQ(view.cells[0].buffer_copies, 1);
    EXPECT_EQ(view.cells[1].buffer_copies, 1);
  }
}

TEST(SchedulerTest, CallsThatAreSlowAtFirstDoNotDecideHowManyASampleHas) {
  Tune tune;
  tune.node_sizes = {{1024}};
  tune.settings.sample_ns = 500'000;
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices;
    // Slow are none; the check; it and the first batch; the first sample too.
    for (const int64_t slow_calls : {0, 1, 2, 3}) {
      choices.push_back(Scripted("slow" + std::to_string(slow_calls), 20'000));
      choices.back().first_calls = slow_calls;
      choices.back().first_extra_ns = 300'000;
    }
    choices.push_back(Scripted("long", 400'000));
    return choices;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    for (const char* name : {"slow0", "slow1", "slow2", "slow3"}) {
      const Verdict& verdict = VerdictOf(view.cells[0], name);
      EXPECT_EQ(verdict.repetitions, 25) << name;
      EXPECT_EQ(verdict.median_ns, 20'000) << name;
      EXPECT_EQ(verdict.interval_high_ns, 20'000) << name << ": samples of one call count";
      EXPECT_EQ(verdict.skews_ns.size(), verdict.samples_ns.size()) << name;
    }
    EXPECT_EQ(VerdictOf(view.cells[0], "long").repetitions, 1);
  }
}

TEST(SchedulerTest, ARankShortOfMemoryGivesAllFewerCopies) {
  Tune tune = TuneOnSmallCache();
  // Without copies each of 2 ranks needs 5 times 33792; half of what is free holds 5 more.
  tune.device = [](int rank) {
    return DeviceScript{rank == 1 ? std::optional<uint64_t>(2u * 5 * 33792) : std::nullopt, 131072};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.cells.at(0).buffer_copies, 6);
    EXPECT_EQ(view.recv_buffers, 6u);
  }
}

TEST(SchedulerTest, ClocksOfTheSlowestAndTheReasonsOfAllAreNoted) {
  Tune tune;
  tune.world_size = 3;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.device = [](int rank) {
    DeviceScript script;
    if (rank == 0) script.clocks = {{1500, {"sw_power_cap"}}, {1980, {"hw_thermal"}}};
    if (rank == 1) script.clocks = {{1200, {}}, {1700, {"hw_thermal", "hw_slowdown"}}};
    return script;  // rank 2 does not know
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.cells.at(0).sm_clock_mhz, 1700);
    EXPECT_EQ(view.cells[0].throttle_reasons, "hw_slowdown,hw_thermal,sw_power_cap");
  }
  tune.device = nullptr;
  for (const RankView& view : RunTune(tune)) {
    EXPECT_EQ(view.cells.at(0).sm_clock_mhz, 0);
    EXPECT_EQ(view.cells[0].throttle_reasons, "");
  }
}

TEST(SchedulerTest, EveryCopyIsRightAfterTheTimedRuns) {
  Tune tune = TuneOnSmallCache();
  tune.choices = [](int) {
    ScriptedChoice stale = Scripted("stale", 10'000);
    stale.keeps_first_buffer = true;
    return std::vector<ScriptedChoice>{stale, Scripted("right", 50'000)};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 16384, 2), "scripted/right");
    EXPECT_EQ(VerdictOf(view.cells[0], "stale").outcome, Outcome::kWrongResult);
    EXPECT_THAT(VerdictOf(view.cells[0], "stale").reason, HasSubstr("after its timed runs"));
  }
}

TEST(SchedulerTest, AWrongChoiceIsDroppedOnAllRanksHoweverFast) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice wrong = Scripted("wrong", 10);
    wrong.wrong_on_rank = 1;
    ScriptedChoice overrun = Scripted("overrun", 20);
    overrun.overruns_on_rank = 0;
    return std::vector<ScriptedChoice>{wrong, overrun, Scripted("right", 50'000)};
  };
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value());
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/right");
    const Verdict& wrong = VerdictOf(view.cells[0], "wrong");
    EXPECT_EQ(wrong.outcome, Outcome::kWrongResult);
    EXPECT_EQ(wrong.wrong_elements, 1u);
    EXPECT_EQ(wrong.reason, "1 wrong elements; rank 1: wrong values");
    EXPECT_THAT(VerdictOf(view.cells[0], "overrun").reason,
                HasSubstr("rank 0: wrote outside of its buffer"));
  }
}

TEST(SchedulerTest, AFailureOnOneRankDropsTheChoiceOnAllAndTheGroupIsMadeAnew) {
  Tune tune;
  tune.world_size = 3;
  tune.choices = [](int) {
    ScriptedChoice unprepared = Scripted("unprepared", 10);
    unprepared.prepare_fails_on_rank = 2;
    ScriptedChoice unlaunched = Scripted("unlaunched", 10);
    unlaunched.launch_fails_on_rank = 1;
    return std::vector<ScriptedChoice>{Scripted("right", 50'000), unprepared, unlaunched};
  };
  tune.node_sizes = {{1024, 2048}};
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 2048, 3), "scripted/right");
    const Verdict& unprepared = VerdictOf(view.cells[1], "unprepared");
    EXPECT_EQ(unprepared.outcome, Outcome::kPrecompileFailed);
    EXPECT_EQ(unprepared.reason, "rank 2: scripted prepare failure");
    const Verdict& unlaunched = VerdictOf(view.cells[1], "unlaunched");
    EXPECT_EQ(unlaunched.outcome, Outcome::kLaunchFailed);
    EXPECT_THAT(unlaunched.reason, HasSubstr("rank 1: scripted launch failure"));
    EXPECT_EQ(view.groups_created, 3);  // once, and again after each failed launch
  }
}

TEST(SchedulerTest, ThousandsOfFailingChoicesReachAllRanksWithTheirReasons) {
  constexpr int kFailing = 4096;
  Tune tune;
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("right", 50'000)};
    for (int i = 0; i < kFailing; ++i) {
      ScriptedChoice& failing =
          choices.emplace_back(Scripted("failing?n=" + std::to_string(i), 10));
      failing.prepare_fails_on_rank = i % 3 == 0 ? 1 : 0;  // the ranks' records differ in length
      failing.prepare_failure = std::to_string(i) + std::string(150, 'x');
    }
    return choices;
  };
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/right");
    ASSERT_EQ(view.cells.size(), 1u);
    ASSERT_EQ(view.cells[0].verdicts.size(), 1u + kFailing);
    for (int i = 0; i < kFailing; ++i) {
      const Verdict& verdict = view.cells[0].verdicts[1 + i];
      EXPECT_EQ(verdict.outcome, Outcome::kPrecompileFailed);
      EXPECT_EQ(verdict.reason, "rank " + std::to_string(i % 3 == 0 ? 1 : 0) + ": " +
                                    std::to_string(i) + std::string(150, 'x'));
    }
  }
}

TEST(SchedulerTest, AKnownCellWhoseWinnerHasEndedATuneIsMeasuredAnewOnAllRanks) {
  MemoryOfCells memory;
  Tune tune;
  tune.known = &memory;
  tune.node_sizes = {{1024, 4096}};
  tune.choices = [](int) {
    ScriptedChoice bad = Scripted("bad", 0);
    bad.cost_ns = [](uint64_t bytes) { return bytes == 1024 ? 10'000 : 90'000; };
    return std::vector<ScriptedChoice>{bad, Scripted("good", 50'000)};
  };
  RunTune(tune);
  ASSERT_EQ(memory.cells.size(), 2u);
  memory.left_out = {{ToText(AllReduce(2)), "scripted/bad", "it has ended a tune"}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 1);
    EXPECT_EQ(view.outcome->known_cells, 1);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/good");
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/good");
  }
}

TEST(SchedulerTest, ARefusalKeepsItsReason) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice refused = Scripted("odd", 1);
    refused.refused = "needs an even number of ranks";
    return std::vector<ScriptedChoice>{Scripted("right", 1000), refused};
  };
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_EQ(views[1].cells.size(), 1u);
  ASSERT_EQ(views[1].cells[0].refusals.size(), 1u);
  EXPECT_EQ(views[1].cells[0].refusals[0].choice, "scripted/odd");
  EXPECT_EQ(views[1].cells[0].refusals[0].reason, "needs an even number of ranks");
  EXPECT_EQ(views[1].observer.plans.at(0).refusals, 1);
}

TEST(SchedulerTest, AMissedWindowGivesEveryRankTheDefaultTableAndOneWarning) {
  Tune tune;
  tune.world_size = 3;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.late_ranks = {2};
  const std::vector<RankView> views = RunTune(tune);
  size_t warnings = 0;
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value());
    EXPECT_FALSE(view.outcome->committed);
    EXPECT_EQ(view.outcome->late_ranks, std::vector<int>{2});
    EXPECT_TRUE(view.outcome->table.rows().empty());
    EXPECT_EQ(view.outcome->measured_cells, 0);
    warnings += view.observer.warnings.size();
  }
  EXPECT_EQ(warnings, 1u);
  EXPECT_THAT(views[0].observer.warnings[0], HasSubstr("rank 2 missed the pre-sync window"));
}

TEST(SchedulerTest, DifferentChoiceListsAreNamed) {
  Tune tune;
  tune.choices = [](int rank) {
    return std::vector<ScriptedChoice>{Scripted(rank == 1 ? "other" : "a", 1000)};
  };
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kDisagreement);
    EXPECT_EQ(view.outcome.error().what, "rank 0 lists scripted/a, rank 1 does not");
    EXPECT_EQ(view.outcome.error().ranks, std::vector<int>{1});
  }
}

TEST(SchedulerTest, DifferentSettingsAreNamed) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.change_settings = [](int rank, TuningSettings& settings) {
    if (rank == 1) settings.collective_benchmark_nruns = 49;
  };
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_FALSE(views[0].outcome.has_value());
  EXPECT_EQ(views[0].outcome.error().what, "setting collective_benchmark_nruns=49");
}

TEST(SchedulerTest, KnownCellsAreNotMeasuredAgain) {
  MemoryOfCells known;
  Tune tune;
  tune.choices = [](int) {
    return std::vector<ScriptedChoice>{Scripted("a", 1000), Scripted("b", 2000)};
  };
  tune.node_sizes = {{1024, 4096}};
  tune.known = &known;
  const std::vector<RankView> first = RunTune(tune);
  ASSERT_TRUE(first[0].outcome.has_value());
  EXPECT_EQ(known.cells.size(), 2u);
  known.cells.erase(known.cells.begin());
  const std::vector<RankView> second = RunTune(tune);
  for (const RankView& view : second) {
    ASSERT_TRUE(view.outcome.has_value());
    EXPECT_EQ(view.outcome->measured_cells, 1);
    EXPECT_EQ(view.outcome->known_cells, 1);
    EXPECT_EQ(view.outcome->table.Serialize(), first[0].outcome->table.Serialize());
  }
  const std::vector<RankView> third = RunTune(tune);
  EXPECT_EQ(third[1].outcome->measured_cells, 0);
  EXPECT_EQ(third[1].plans_prepared, 2) << "each winner once, before the vote";
  EXPECT_EQ(third[1].observer.plans.at(0).known_cells, 2);
}

TEST(SchedulerTest, AKnownCellIsDecidedByTheRulesOfThisTune) {
  MemoryOfCells known;
  Tune tune;
  tune.known = &known;
  tune.choices = [](int) {
    ScriptedChoice usual = Scripted("usual", 100'000);
    usual.is_default = true;
    return std::vector<ScriptedChoice>{usual, Scripted("faster", 96'000)};
  };
  tune.settings.noise_percent = 10;
  EXPECT_EQ(WinnerAt(*RunTune(tune)[0].outcome, 1024, 2), "scripted/usual");
  tune.settings.noise_percent = 1;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->known_cells, 1);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/faster");
  }
}

TEST(SchedulerTest, AKnownWinnerThatOneRankCannotRunIsDeclinedByName) {
  MemoryOfCells known;
  Tune tune;
  tune.known = &known;
  tune.choices = [](int) {
    return std::vector<ScriptedChoice>{Scripted("a", 1000), Scripted("b", 2000)};
  };
  ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
  tune.choices = [](int) {
    ScriptedChoice a = Scripted("a", 1000);
    a.prepare_fails_on_rank = 1;
    return std::vector<ScriptedChoice>{a, Scripted("b", 2000)};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kDisagreement);
    EXPECT_THAT(view.outcome.error().ToText(),
                AllOf(HasSubstr("rank 1 cannot run scripted/a"), HasSubstr("count256"),
                      HasSubstr("scripted prepare failure")));
  }
}

TEST(SchedulerTest, WhatIsTunedIsMergedIntoTheTableInForceSizeBySize) {
  Tune tune;
  tune.choices = [](int) {
    return std::vector<ScriptedChoice>{Scripted("slow", 9000), Scripted("fast", 1000)};
  };
  tune.node_sizes = {{1024}};
  const DispatchKey key = DispatchKey::Of(AllReduce(2));
  tune.base.Put(key, 1024, *ChoiceId::Parse("scripted/slow"));
  tune.base.Put(key, 1 << 20, *ChoiceId::Parse("scripted/slow"));
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/fast");
    EXPECT_EQ(WinnerAt(*view.outcome, 1 << 20, 2), "scripted/slow");
    EXPECT_EQ(view.outcome->winners.size(), 2u);
    EXPECT_EQ(view.outcome->winners.BuildTable()->Serialize(), view.outcome->table.Serialize())
        << "what was agreed on is what these make";
  }
}

// More than one message carries: every rank hears of all cells, and nothing is measured again.
TEST(SchedulerTest, KnownCellsOfAnyLengthReachAllRanks) {
  MemoryOfCells known;
  Tune tune;
  tune.known = &known;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{1024, 4096, 16384}};
  ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
  for (auto& [problem, cell] : known.cells) {
    for (int i = 0; i < 100; ++i) {
      cell.refusals.push_back({"scripted/refused" + std::to_string(i), std::string(80'000, 'x')});
    }
  }
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->known_cells, 3);
    EXPECT_EQ(view.outcome->measured_cells, 0);
    EXPECT_TRUE(view.outcome->committed);
  }
}

TEST(SchedulerTest, ASpentBudgetSkipsWhatIsLeft) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{1024, 2048, 4096, 8192}};
  tune.settings.budget_ns = 20'000'000;  // the coordinator of the test takes 1 ms a step
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value());
    EXPECT_GT(view.outcome->measured_cells, 0);
    EXPECT_GT(view.outcome->skipped_cells, 0);
    EXPECT_EQ(view.outcome->measured_cells + view.outcome->skipped_cells, 4);
  }
}

TEST(SchedulerTest, ABudgetIsForAllNodesInImmediateModeToo) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{1024, 2048}, {1024, 2048}};
  tune.settings.enable_collective_multitemplate = false;
  tune.settings.budget_ns = 20'000'000;  // less than one node takes
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->measured_cells, 1);
    EXPECT_EQ(view.outcome->skipped_cells, 3);
    // Each plan is of its own pass, and a node that got no time is no failure of its choices.
    ASSERT_EQ(view.observer.plans.size(), 2u);
    for (const TunePlan& plan : view.observer.plans) {
      EXPECT_EQ(plan.cells, 2);
      EXPECT_EQ(plan.known_cells, 0);
    }
    EXPECT_TRUE(view.observer.warnings.empty()) << view.observer.warnings[0];
  }
}

TEST(SchedulerTest, KnownCellsCountInThePlanOfTheirPassOnly) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{1024, 2048}, {1024, 2048, 4096}};
  tune.settings.enable_collective_multitemplate = false;
  MemoryOfCells known;
  tune.known = &known;
  RunTune(tune);
  for (const RankView& view : RunTune(tune)) {
    ASSERT_EQ(view.observer.plans.size(), 2u);
    EXPECT_EQ(view.observer.plans[0].cells, 2);
    EXPECT_EQ(view.observer.plans[0].known_cells, 2);
    EXPECT_EQ(view.observer.plans[1].cells, 3);
    EXPECT_EQ(view.observer.plans[1].known_cells, 3);
    ASSERT_TRUE(view.outcome.has_value());
    EXPECT_EQ(view.outcome->known_cells, 5);
  }
}

TEST(SchedulerTest, MemoryThatOneRankLacksEndsTheTuneOnAllBeforeItBegins) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{1 << 20}};
  // Two ranks with send and receive buffer, three kinds of data for both, and room to make it: 10
  // MiB each, and some guards.
  tune.device = [](int rank) { return DeviceScript{uint64_t{rank == 1 ? 20u : 21u} << 20}; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kEnvironment);
    EXPECT_THAT(view.outcome.error().ToText(),
                AllOf(HasSubstr("rank 1"), HasSubstr("10 MiB on each of 2 ranks"),
                      HasSubstr("20 MiB are free"), HasSubstr("smaller sizes")));
    EXPECT_TRUE(view.cells.empty());
  }
  tune.device = [](int) { return DeviceScript{uint64_t{21} << 20}; };
  for (const RankView& view : RunTune(tune)) EXPECT_TRUE(view.outcome.has_value());
}

TEST(SchedulerTest, ANodeWithoutSizesOrOfAnotherGroupIsRefused) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{}};
  EXPECT_EQ(RunTune(tune)[0].outcome.error().what, "there is no size to tune");
  tune.settings.collective_multi_kernel_hints_bytes = {2048};
  const std::vector<RankView> hinted = RunTune(tune);
  ASSERT_TRUE(hinted[0].outcome.has_value());
  EXPECT_EQ(hinted[0].cells[0].problem.bytes(), 2048u);
}

// The scripted backend fails a symmetric call whose buffers lie outside of registered memory.
TEST(SchedulerTest, SymmetricProblemsAreMeasuredOnRegisteredMemory) {
  Tune tune;
  tune.buffer_class = BufferClass::kSymmetric;
  tune.node_sizes = {{1024, 4096, 64}, {2048}};
  tune.choices = [](int) {
    ScriptedChoice slow = Scripted("slow", 50'000);
    slow.is_default = true;
    return std::vector<ScriptedChoice>{slow, Scripted("fast", 20'000)};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome) << view.outcome.error().ToText();
    ASSERT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->measured_cells, 4);
    EXPECT_EQ(view.groups_created, 1) << "no launch failed";
    ProblemClass cls = AllReduce(2);
    cls.buffer_class = BufferClass::kSymmetric;
    const DispatchTable& table = view.outcome->table;
    const int32_t choice = table.Lookup(DispatchKey::Of(cls), 1024);
    ASSERT_NE(choice, DispatchTable::kNoChoice);
    EXPECT_EQ(table.choices()[choice].text(), "scripted/fast");
  }
}

TEST(SchedulerTest, SymmetricProblemsWithoutSuchMemoryAreAnErrorOnAllRanks) {
  Tune tune;
  tune.buffer_class = BufferClass::kSymmetric;
  tune.register_fails_on_rank = 1;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("fast", 20'000)}; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome);
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(view.outcome.error().ToText(), HasSubstr("scripted refusal of memory"));
  }
}

}  // namespace
}  // namespace cotune
