#include "core/benchmark/winner_recheck.h"

#include "core/testing/cell_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::StartsWith;

CellScript ScriptWithStaleChoice() {
  CellScript script;
  script.count = 4096;
  script.device = [](int) { return DeviceScript{std::nullopt, 131072}; };  // 9 copies
  script.choices = {ChoiceOfCost("stale", 10'000), ChoiceOfCost("right", 50'000)};
  script.choices[0].keeps_first_buffer = true;
  return script;
}

TEST(WinnerRecheckTest, AWinnerThatGoesWrongInARowOfCallsGivesWayToTheNext) {
  RunOnPreparedRanks(ScriptWithStaleChoice(), [](PreparedCellOnRank& cell) {
    CorrectnessCheck check(cell.parts, cell.steps, *cell.prepared.buffers, cell.runs, cell.removal);
    ASSERT_TRUE(check.Run(cell.choices[0], CheckBy::kCall).has_value());
    ASSERT_FALSE(cell.choices[0].has_failed) << "a single call is right";
    CellResult timed = RacedCell(cell, {10'000, 50'000});
    timed.verdicts[0].warm_median_ns = 9'000;
    const Result<DecidedCell> decided =
        WinnerRecheck(check, {}).Run(cell.choices, std::move(timed));
    ASSERT_TRUE(decided.has_value()) << decided.error().ToText();
    const std::vector<Verdict>& verdicts = decided->cell.verdicts;
    EXPECT_EQ(verdicts[0].outcome, Outcome::kWrongResult);
    EXPECT_THAT(verdicts[0].reason, StartsWith("after its timed runs: "));
    EXPECT_EQ(verdicts[0].median_ns, 0);
    EXPECT_EQ(verdicts[0].warm_median_ns, 0);
    EXPECT_EQ(verdicts[1].outcome, Outcome::kTimed);
    ASSERT_TRUE(decided->winner.has_value());
    EXPECT_EQ(decided->winner->id.text(), "scripted/right");
  });
}

TEST(WinnerRecheckTest, OnlyTheWinnerIsChecked) {
  RunOnPreparedRanks(ScriptWithStaleChoice(), [](PreparedCellOnRank& cell) {
    CorrectnessCheck check(cell.parts, cell.steps, *cell.prepared.buffers, cell.runs, cell.removal);
    const Result<DecidedCell> decided =
        WinnerRecheck(check, {}).Run(cell.choices, RacedCell(cell, {90'000, 50'000}));
    ASSERT_TRUE(decided.has_value());
    EXPECT_EQ(decided->cell.verdicts[0].outcome, Outcome::kTimed);
    EXPECT_EQ(cell.choices[0].check_ns, 0);
  });
}

TEST(WinnerRecheckTest, ACellWithoutAWinnerNeedsNoStep) {
  RunOnPreparedRanks(ScriptWithStaleChoice(), [](PreparedCellOnRank& cell) {
    CorrectnessCheck check(cell.parts, cell.steps, *cell.prepared.buffers, cell.runs, cell.removal);
    const Result<DecidedCell> decided = WinnerRecheck(check, {}).Run(cell.choices, CellResult{});
    ASSERT_TRUE(decided.has_value());
    EXPECT_EQ(decided->winner.error().what, "no choice could be timed");
  });
}

}  // namespace
}  // namespace cotune
