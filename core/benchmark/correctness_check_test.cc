#include "core/benchmark/correctness_check.h"

#include "core/testing/cell_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

CorrectnessCheck CheckOf(PreparedCellOnRank& cell) {
  return {cell.parts, cell.steps, *cell.prepared.buffers, cell.runs, cell.removal};
}

TEST(CorrectnessCheckTest, ARightChoiceHasTheTimeOfItsSlowestRank) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 12'000)};
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CorrectnessCheck check = CheckOf(cell);
    for (const CheckBy by : {CheckBy::kCall, CheckBy::kTimedCalls}) {
      ASSERT_TRUE(check.Run(cell.choices[0], by).has_value());
      EXPECT_FALSE(cell.choices[0].has_failed);
      EXPECT_EQ(cell.choices[0].check_ns, 12'000);
      EXPECT_EQ(cell.choices[0].verdict.wrong_elements, 0u);
    }
  });
}

TEST(CorrectnessCheckTest, AWrongResultOfOneRankRemovesTheChoiceOnAllAndLeavesTheGroup) {
  CellScript script;
  script.choices = {ChoiceOfCost("wrong", 1000), ChoiceOfCost("overrun", 1000)};
  script.choices[0].wrong_on_rank = 1;
  script.choices[1].overruns_on_rank = 0;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CorrectnessCheck check = CheckOf(cell);
    for (RacingChoice& choice : cell.choices) {
      ASSERT_TRUE(check.Run(choice, CheckBy::kCall).has_value());
      EXPECT_TRUE(choice.has_failed);
      EXPECT_EQ(choice.verdict.outcome, Outcome::kWrongResult);
    }
    EXPECT_EQ(cell.choices[0].verdict.reason, "rank 1: wrong values");
    EXPECT_THAT(cell.choices[1].verdict.reason, HasSubstr("rank 0: wrote outside of its buffer"));
    EXPECT_EQ(cell.backend.groups_created, 1);
  });
}

TEST(CorrectnessCheckTest, AFailedCallRemovesTheChoiceOnAllAndMakesTheGroupAnew) {
  CellScript script;
  script.choices = {ChoiceOfCost("failing", 1000), ChoiceOfCost("right", 1000)};
  script.choices[0].launch_fails_on_rank = 1;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CorrectnessCheck check = CheckOf(cell);
    ASSERT_TRUE(check.Run(cell.choices[0], CheckBy::kCall).has_value());
    EXPECT_EQ(cell.choices[0].verdict.outcome, Outcome::kLaunchFailed);
    EXPECT_THAT(cell.choices[0].verdict.reason, HasSubstr("rank 1: scripted launch failure"));
    EXPECT_EQ(cell.backend.groups_created, 2);
    ASSERT_TRUE(check.Run(cell.choices[1], CheckBy::kCall).has_value());
    EXPECT_FALSE(cell.choices[1].has_failed) << "it runs in the new group";
  });
}

// An average over three ranks, which a right choice may round in two ways.
CellScript AveragesWithAnUlpOn(int rank) {
  CellScript script;
  script.world_size = 3;
  script.reduction = Reduction::kAverage;
  script.choices = {ChoiceOfCost("reproducible", 1000), ChoiceOfCost("other", 1000),
                    ChoiceOfCost("same_bits", 1000)};
  for (const size_t each : {0, 1}) script.choices[each].ulp_on_rank = rank;
  for (const size_t each : {0, 2}) script.choices[each].is_reproducible = true;
  return script;
}

TEST(CorrectnessCheckTest, BitsThatDependOnTheRankAreWrongIfTheChoiceIsReproducibleElseANote) {
  for (const CheckBy by : {CheckBy::kCall, CheckBy::kTimedCalls}) {
    RunOnPreparedRanks(AveragesWithAnUlpOn(1), [&](PreparedCellOnRank& cell) {
      CorrectnessCheck check = CheckOf(cell);
      for (RacingChoice& choice : cell.choices) {
        ASSERT_TRUE(check.Run(choice, by).has_value());
        EXPECT_GT(choice.check_ns, 0);
      }
      EXPECT_TRUE(cell.choices[0].has_failed);
      const Verdict& refused = cell.choices[0].verdict;
      EXPECT_EQ(refused.outcome, Outcome::kWrongResult);
      EXPECT_EQ(refused.wrong_elements, 1u);
      EXPECT_EQ(refused.reason,
                "its bits depend on the rank, although it is listed as reproducible: "
                "the result has other bits on rank 1 than on ranks 0, 2");
      EXPECT_FALSE(cell.choices[1].has_failed);
      const Verdict& noted = cell.choices[1].verdict;
      EXPECT_EQ(noted.outcome, Outcome::kTimed);
      EXPECT_EQ(noted.wrong_elements, 0u);
      EXPECT_EQ(noted.reason,
                "its bits depend on the rank: "
                "the result has other bits on rank 1 than on ranks 0, 2");
      EXPECT_FALSE(cell.choices[2].has_failed);
      EXPECT_EQ(cell.choices[2].verdict.reason, "");
    });
  }
}

TEST(CorrectnessCheckTest, ResultsThatMayDifferBetweenRanksAreNotCompared) {
  CellScript script = AveragesWithAnUlpOn(1);
  script.collective = Collective::kReduceScatter;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CorrectnessCheck check = CheckOf(cell);
    for (RacingChoice& choice : cell.choices) {
      ASSERT_TRUE(check.Run(choice, CheckBy::kCall).has_value());
      EXPECT_FALSE(choice.has_failed);
      EXPECT_EQ(choice.verdict.reason, "");
    }
  });
}

// Also those after a choice that failed before its check could fill the buffers.
TEST(CorrectnessCheckTest, TimedCallsInPlaceAfterACheckStayFinite) {
  CellScript script;
  script.in_place = true;
  script.choices = {ChoiceOfCost("right", 1000), ChoiceOfCost("failing", 1000)};
  script.choices[1].launch_fails_on_rank = 1;
  for (const size_t checked : {1, 2}) {
    RunOnPreparedRanks(script, [&](PreparedCellOnRank& cell) {
      CorrectnessCheck check = CheckOf(cell);
      for (size_t i = 0; i < checked; ++i) {
        ASSERT_TRUE(check.Run(cell.choices[i], CheckBy::kCall).has_value());
      }
      for (int sample = 0; sample < 200; ++sample) {
        ASSERT_TRUE(cell.runs.CallTimed(cell.choices[0], 1, 0).has_value());
      }
      LaunchArguments arguments;
      cell.prepared.buffers->SetAddresses(arguments, 0);
      const auto* recv = static_cast<const float*>(arguments.recv);
      for (uint64_t i = 0; i < cell.problem.count; ++i) ASSERT_EQ(recv[i], 0) << i;
    });
  }
}

// A second call would read the result of the first.
TEST(CorrectnessCheckTest, TheCheckOfTimedCallsInPlaceHasNoUntimedCall) {
  CellScript script;
  script.in_place = true;
  script.choices = {ChoiceOfCost("right", 1000)};
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CorrectnessCheck check = CheckOf(cell);
    cell.choices[0].adds_untimed_call = true;
    ASSERT_TRUE(check.Run(cell.choices[0], CheckBy::kTimedCalls).has_value());
    EXPECT_FALSE(cell.choices[0].has_failed) << cell.choices[0].verdict.reason;
    EXPECT_EQ(cell.choices[0].verdict.wrong_elements, 0u);
  });
}

TEST(CorrectnessCheckTest, AnInterruptedCallSaysNothingAboutTheChoice) {
  CellScript script;
  script.choices = {ChoiceOfCost("failing", 1000)};
  script.choices[0].launch_fails_on_rank = 0;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    class Stopping final : public StageObserver {
      bool StopRequested() override { return true; }
    } stopping;
    const BenchmarkParts parts{.exchange = cell.parts.exchange,
                               .groups = cell.parts.groups,
                               .device = cell.parts.device,
                               .clock = cell.parts.clock,
                               .observer = stopping,
                               .watchdog = cell.parts.watchdog,
                               .settings = cell.parts.settings,
                               .reset_callers = cell.parts.reset_callers};
    ChoiceRuns runs(parts, cell.problem, *cell.prepared.buffers, cell.steps,
                    cell.prepared.buffers->copies());
    CorrectnessCheck check(parts, cell.steps, *cell.prepared.buffers, runs, cell.removal);
    const Status checked = check.Run(cell.choices[0], CheckBy::kCall);
    ASSERT_FALSE(checked.has_value());
    EXPECT_EQ(checked.error().code, ErrorCode::kInterrupted);
    EXPECT_FALSE(cell.choices[0].has_failed);
  });
}

}  // namespace
}  // namespace cotune
