// A tune of cells that are measured: buffers, samples, failures.
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

TEST(MeasuredCellsTuneTest, TimedCallsGoRoundOverCopiesWhereACacheWouldHoldTheBuffers) {
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

TEST(MeasuredCellsTuneTest, WhereColdChoicesTieTheFasterOneInTheCacheWins) {
  Tune tune = TuneOnSmallCache();
  tune.choices = [](int) {
    std::vector<ScriptedChoice> choices = {Scripted("a", 29'000), Scripted("b", 25'000),
                                           Scripted("slow", 20'000)};
    choices[0].cold_extra_ns = 1'000;
    choices[1].cold_extra_ns = 5'100;
    choices[2].cold_extra_ns = 12'000;
    return choices;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(VerdictOf(view.cells.at(0), "a").median_ns, 30'000);
    EXPECT_EQ(VerdictOf(view.cells[0], "a").warm_median_ns, 29'000);
    EXPECT_EQ(VerdictOf(view.cells[0], "b").median_ns, 30'100);
    EXPECT_EQ(VerdictOf(view.cells[0], "b").warm_median_ns, 25'000);
    EXPECT_EQ(VerdictOf(view.cells[0], "slow").warm_median_ns, 0);
    EXPECT_EQ(WinnerAt(*view.outcome, 16384, 2), "scripted/b");
  }
  tune.settings.budget_ns = 1;  // no time for it
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(VerdictOf(view.cells.at(0), "a").warm_median_ns, 0);
    EXPECT_EQ(WinnerAt(*view.outcome, 16384, 2), "scripted/a");
  }
}

TEST(MeasuredCellsTuneTest, CallsThatAreSlowAtFirstDoNotDecideHowManyASampleHas) {
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
    EXPECT_EQ(VerdictOf(view.cells[0], "long").repetitions, 3);
  }
}

TEST(MeasuredCellsTuneTest, ARankShortOfMemoryGivesAllFewerCopies) {
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

TEST(MeasuredCellsTuneTest, ClocksOfTheSlowestAndTheReasonsOfAllAreNoted) {
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

TEST(MeasuredCellsTuneTest, EveryCopyIsRightAfterTheTimedRuns) {
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

TEST(MeasuredCellsTuneTest, AWrongChoiceIsDroppedOnAllRanksHoweverFast) {
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
    EXPECT_EQ(wrong.reason, "rank 1: wrong values");
    EXPECT_THAT(VerdictOf(view.cells[0], "overrun").reason,
                HasSubstr("rank 0: wrote outside of its buffer"));
  }
}

TEST(MeasuredCellsTuneTest, AFailureOnOneRankDropsTheChoiceOnAllAndTheGroupIsMadeAnew) {
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

TEST(MeasuredCellsTuneTest, ThousandsOfFailingChoicesReachAllRanksWithTheirReasons) {
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

// The scripted backend fails a symmetric call whose buffers lie outside of registered memory.
TEST(MeasuredCellsTuneTest, SymmetricProblemsAreMeasuredOnRegisteredMemory) {
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

TEST(MeasuredCellsTuneTest, ProgramsWithRegisteredOperandsAreMeasuredOnThem) {
  Tune tune;
  tune.buffer_class = BufferClass::kSymmetric;
  tune.node_programs = {
      "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n",
      "%x = input f32 [R, 4]\n%t = cast %x, to=f64\n%s = all_reduce sum %t\nreturn %s\n"};
  tune.node_sizes = {{1024, 4096}, {1024}};
  tune.choices = [](int) {
    ScriptedChoice slow = Scripted("slow", 50'000);
    slow.is_default = true;
    return std::vector<ScriptedChoice>{slow, Scripted("fast", 20'000)};
  };
  const Program program = ProgramOfNode(tune, 0);
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome) << view.outcome.error().ToText();
    ASSERT_TRUE(view.outcome->committed);
    ASSERT_EQ(view.cells.size(), 3u);
    EXPECT_EQ(view.groups_created, 1) << "no launch failed";
    EXPECT_EQ(view.cells[0].problem.cls.buffer_class, BufferClass::kSymmetric);
    EXPECT_THAT(view.cells[0].refusals, IsEmpty());
    // The result of the cast lies in memory of the job, which is not registered.
    ASSERT_THAT(view.cells[2].refusals, SizeIs(1));
    EXPECT_EQ(view.cells[2].refusals[0].choice, "registered buffers for collective 1 (all_reduce)");
    EXPECT_EQ(view.cells[2].refusals[0].reason,
              "its operand lies between two steps, in memory of the job");
    const DispatchTable& table = view.outcome->table;
    const int32_t choice = table.Lookup(DispatchKey::Of(program.anchor()), 1024);
    ASSERT_NE(choice, DispatchTable::kNoChoice);
    EXPECT_EQ(table.choices()[choice].text(), "scripted/fast");
  }
}

// A device gives all ranks one size of the cache, by which the size of their regions follows.
TEST(MeasuredCellsTuneTest, RegionsOfOtherSizesOnSomeRanksAreAnErrorOnAllRanks) {
  Tune tune;
  tune.buffer_class = BufferClass::kSymmetric;
  tune.node_sizes = {{65536}};
  tune.device = [](int rank) {
    return DeviceScript{std::nullopt, (rank == 1 ? 256u : 128u) << 10};
  };
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("fast", 20'000)}; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome);
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kUsage);
    EXPECT_THAT(view.outcome.error().what,
                testing::MatchesRegex("rank 0 registers [0-9]+ bytes, rank 1 registers [0-9]+"));
  }
}

TEST(MeasuredCellsTuneTest, SymmetricProblemsWithoutSuchMemoryAreAnErrorOnAllRanks) {
  Tune tune;
  tune.buffer_class = BufferClass::kSymmetric;
  tune.register_fails_on_rank = 1;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("fast", 20'000)}; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome);
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(view.outcome.error().ToText(),
              "no backend takes registered memory: scripted: rank 1: scripted refusal of memory; "
              "use plain buffers");
  }
}

}  // namespace
}  // namespace cotune
