#include "core/benchmark/tie_break.h"

#include "core/testing/cell_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A choice of `warm_ns` a call, which takes `cold_ns` where calls go round over copies.
ScriptedChoice ChoiceOfCosts(std::string name, int64_t cold_ns, int64_t warm_ns) {
  ScriptedChoice choice = ChoiceOfCost(std::move(name), warm_ns);
  choice.cold_extra_ns = cold_ns - warm_ns;
  return choice;
}

CellScript ScriptOf(std::vector<ScriptedChoice> choices) {
  CellScript script;
  script.count = 4096;
  script.device = [](int) { return DeviceScript{std::nullopt, 131072}; };  // 9 copies
  script.choices = std::move(choices);
  return script;
}

std::vector<int64_t> WarmMedians(const CellResult& cell) {
  std::vector<int64_t> medians_ns;
  for (const Verdict& verdict : cell.verdicts) medians_ns.push_back(verdict.warm_median_ns);
  return medians_ns;
}

Status Break(PreparedCellOnRank& cell, CellResult& result) {
  StartWindow window(cell.parts.start_mode);
  TieBreak tie_break(cell.parts, cell.problem, *cell.prepared.buffers, cell.steps, window);
  return tie_break.Run(cell.choices, result);
}

bool CanBeBroken(PreparedCellOnRank& cell) {
  return TieBreak::IsOf(cell.program, cell.problem, *cell.prepared.buffers, cell.parts.device);
}

TEST(TieBreakTest, TiedChoicesAreTimedOnOneCopyOfTheBuffers) {
  RunOnPreparedRanks(
      ScriptOf({ChoiceOfCosts("a", 10'000, 9'000), ChoiceOfCosts("b", 10'100, 7'000),
                ChoiceOfCosts("slow", 10'300, 1'000), ChoiceOfCosts("c", 10'050, 9'500)}),
      [](PreparedCellOnRank& cell) {
        CellResult result = RacedCell(cell, {10'000, 10'100, 10'300, 10'050});
        ASSERT_TRUE(Break(cell, result).has_value());
        EXPECT_THAT(WarmMedians(result), ElementsAre(9'000, 7'000, 0, 9'500));
        EXPECT_EQ(result.verdicts[1].median_ns, 10'100) << "the time of the race stays";
        EXPECT_EQ(result.verdicts[1].samples_ns.size(), 8u);
        EXPECT_EQ(Decide(result, {}).winner->id.text(), "scripted/b");
      });
}

TEST(TieBreakTest, ThereIsNothingToTimeWithoutATie) {
  RunOnPreparedRanks(ScriptOf({ChoiceOfCosts("a", 10'000, 9'000), ChoiceOfCosts("b", 10'300, 1)}),
                     [](PreparedCellOnRank& cell) {
                       CellResult result = RacedCell(cell, {10'000, 10'300});
                       const int64_t before_ns = cell.steps.elapsed_ns();
                       ASSERT_TRUE(Break(cell, result).has_value());
                       EXPECT_THAT(WarmMedians(result), ElementsAre(0, 0));
                       EXPECT_EQ(cell.steps.elapsed_ns(), before_ns) << "and no step to take";
                     });
}

// A call takes 33 KiB: with 32 KiB of cache it drives itself out, but not with 34.
TEST(TieBreakTest, OneCopyFitsTheCacheAndTheRaceHadMore) {
  const auto can_be_broken = [](uint64_t cache_bytes) {
    CellScript script = ScriptOf({ChoiceOfCosts("a", 10'000, 9'000)});
    script.device = [cache_bytes](int) { return DeviceScript{std::nullopt, cache_bytes}; };
    bool can = false;
    RunOnPreparedRanks(script, [&](PreparedCellOnRank& cell) {
      if (cell.parts.exchange.rank() == 0) can = CanBeBroken(cell);
    });
    return can;
  };
  EXPECT_FALSE(can_be_broken(0)) << "one copy";
  EXPECT_FALSE(can_be_broken(10 * 1024)) << "one copy, larger than two caches";
  EXPECT_FALSE(can_be_broken(32 * 1024));
  EXPECT_TRUE(can_be_broken(34 * 1024));
  EXPECT_TRUE(can_be_broken(128 * 1024));
  EXPECT_FALSE(can_be_broken(1024 * 1024)) << "one copy, hot in programs too";
}

TEST(TieBreakTest, MediansAreOfTheSameRounds) {
  ScriptedChoice slow = ChoiceOfCosts("slow", 10'000, 20'000);
  RunOnPreparedRanks(
      ScriptOf({ChoiceOfCosts("a", 10'000, 9'000), slow}), [](PreparedCellOnRank& cell) {
        CellResult result = RacedCell(cell, {10'000, 10'000});
        const int64_t before_ns = cell.steps.elapsed_ns();
        ASSERT_TRUE(Break(cell, result).has_value());
        EXPECT_THAT(WarmMedians(result), ElementsAre(9'000, 20'000));
        // A step takes a millisecond, and a round of 2 samples without a common start 3 steps.
        EXPECT_EQ(cell.steps.elapsed_ns() - before_ns, 8 * 3 * 1'000'000) << "nobody is cut";
      });
}

TEST(TieBreakTest, AnOutpacedChoiceMayWin) {
  RunOnPreparedRanks(
      ScriptOf({ChoiceOfCosts("a", 10'000, 9'000), ChoiceOfCosts("b", 10'050, 8'000)}),
      [](PreparedCellOnRank& cell) {
        CellResult result = RacedCell(cell, {10'000, 10'050});
        result.verdicts[1].outcome = Outcome::kOutpaced;
        ASSERT_TRUE(Break(cell, result).has_value());
        EXPECT_THAT(WarmMedians(result), ElementsAre(9'000, 8'000));
        EXPECT_EQ(result.verdicts[1].outcome, Outcome::kOutpaced);
        EXPECT_EQ(Decide(result, {}).winner->id.text(), "scripted/b");
      });
}

TEST(TieBreakTest, WhereTheFastestFailsTheOthersAreCompared) {
  CellScript script =
      ScriptOf({ChoiceOfCosts("failing", 10'000, 7'000), ChoiceOfCosts("b", 10'050, 9'000),
                ChoiceOfCosts("c", 10'100, 8'000)});
  script.choices[0].launch_fails_on_rank = 1;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    CellResult result = RacedCell(cell, {10'000, 10'050, 10'100});
    ASSERT_TRUE(Break(cell, result).has_value());
    EXPECT_TRUE(cell.choices[0].has_failed);
    EXPECT_THAT(WarmMedians(result), ElementsAre(0, 9'000, 8'000));
    EXPECT_EQ(Decide(result, {}).winner->id.text(), "scripted/c");
  });
}

TEST(TieBreakTest, AChoiceThatFailsIsRemovedOnAllAndTheOthersAreTimed) {
  CellScript script =
      ScriptOf({ChoiceOfCosts("a", 10'000, 9'000), ChoiceOfCosts("failing", 10'000, 7'000),
                ChoiceOfCosts("c", 10'050, 8'000)});
  script.world_size = 3;
  script.choices[1].launch_fails_on_rank = 2;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    // Timed calls of the race, whose plans go when the group is made anew.
    ASSERT_TRUE(cell.runs.CallTimed(cell.choices[0], 9, 0).has_value());
    CellResult result = RacedCell(cell, {10'000, 10'000, 10'050});
    ASSERT_TRUE(Break(cell, result).has_value());
    EXPECT_EQ(cell.choices[0].timed, nullptr);
    EXPECT_THAT(WarmMedians(result), ElementsAre(9'000, 0, 8'000));
    EXPECT_TRUE(cell.choices[1].has_failed);
    EXPECT_EQ(result.verdicts[1].outcome, Outcome::kLaunchFailed);
    EXPECT_EQ(result.verdicts[1].median_ns, 0);
    EXPECT_THAT(result.verdicts[1].reason, StartsWith("with its buffers in the cache: "));
    EXPECT_THAT(result.verdicts[1].reason, HasSubstr("rank 2: scripted launch failure"));
    EXPECT_EQ(cell.backend.groups_created, 2);
    EXPECT_EQ(Decide(result, {}).winner->id.text(), "scripted/c");
  });
}

}  // namespace
}  // namespace cotune
