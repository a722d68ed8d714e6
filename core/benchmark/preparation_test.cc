#include "core/benchmark/preparation.h"

#include <string>
#include <utility>

#include "core/testing/cell_on_ranks.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

Result<PreparedCell> Prepare(CellOnRank& cell) {
  return Preparation(cell.parts, cell.program, cell.problem, cell.steps).Run(cell.choices);
}

TEST(PreparationTest, EveryRankHasAsManyCopiesAsThePoorestCanAfford) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 1000)};
  script.count = 4096;  // 33 KiB with guards: 9 copies are twice a cache of 128 KiB
  script.device = [](int) { return DeviceScript{std::nullopt, 131072}; };
  RunOnRanks(script, [](CellOnRank& cell) {
    const Result<PreparedCell> prepared = Prepare(cell);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().ToText();
    EXPECT_EQ(prepared->buffers->copies(), 9);
  });
  script.device = [](int rank) {
    // Half of what is free holds 5 copies more.
    return DeviceScript{rank == 1 ? std::optional<uint64_t>(2u * 5 * 33792) : std::nullopt, 131072};
  };
  RunOnRanks(script, [](CellOnRank& cell) {
    const Result<PreparedCell> prepared = Prepare(cell);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().ToText();
    EXPECT_EQ(prepared->buffers->copies(), 6);
  });
}

TEST(PreparationTest, ALaterHeatHasTheOperandsOfTheOneBefore) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 1000)};
  script.count = 4096;
  script.device = [](int) { return DeviceScript{std::nullopt, 131072}; };
  RunOnRanks(script, [](CellOnRank& cell) {
    Result<PreparedCell> first = Prepare(cell);
    ASSERT_TRUE(first.has_value()) << first.error().ToText();
    const CellOperands* const operands = first->buffers.get();
    const Result<PreparedCell> second =
        Preparation(cell.parts, cell.program, cell.problem, cell.steps, std::move(first->buffers))
            .Run(cell.choices);
    ASSERT_TRUE(second.has_value()) << second.error().ToText();
    EXPECT_EQ(second->buffers.get(), operands);
    EXPECT_EQ(second->buffers->copies(), 9);
    EXPECT_FALSE(cell.choices[0].has_failed);
  });
}

TEST(PreparationTest, AChoiceThatSomeRankCannotPrepareFailsOnAllWithEachReasonSaidOnce) {
  CellScript script;
  script.world_size = 3;
  script.choices = {ChoiceOfCost("right", 1000), ChoiceOfCost("broken", 1000)};
  script.choices[1].prepare_fails_on_rank = 2;
  RunOnRanks(script, [](CellOnRank& cell) {
    ASSERT_TRUE(Prepare(cell).has_value());
    EXPECT_FALSE(cell.choices[0].has_failed);
    EXPECT_TRUE(cell.choices[1].has_failed);
    EXPECT_EQ(cell.choices[1].verdict.outcome, Outcome::kPrecompileFailed);
    EXPECT_EQ(cell.choices[1].verdict.reason, "rank 2: scripted prepare failure");
  });
}

TEST(PreparationTest, ALongReasonEndsAfterAWholeWord) {
  CellScript script;
  script.choices = {ChoiceOfCost("broken", 1000)};
  script.choices[0].prepare_fails_on_rank = 1;
  script.choices[0].prepare_failure = std::string(190, 'x') + " allocation failed";
  RunOnRanks(script, [](CellOnRank& cell) {
    ASSERT_TRUE(Prepare(cell).has_value());
    EXPECT_EQ(cell.choices[0].verdict.reason, "rank 1: " + std::string(190, 'x') + "...");
  });
}

TEST(PreparationTest, ClocksOfOneRankMakeAllRanksReadTheirsAtTheEnd) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 1000)};
  script.device = [](int rank) {
    DeviceScript device;
    if (rank == 1) device.clocks = {{1500, {"hw_thermal"}}};
    return device;
  };
  RunOnRanks(script, [](CellOnRank& cell) {
    const Result<PreparedCell> prepared = Prepare(cell);
    ASSERT_TRUE(prepared.has_value());
    EXPECT_TRUE(prepared->some_know_clocks);
    EXPECT_EQ(prepared->clocks_before.has_value(), cell.parts.exchange.rank() == 1);
  });
}

TEST(PreparationTest, ARankThatIsAskedToStopStopsAll) {
  CellScript script;
  script.choices = {ChoiceOfCost("a", 1000)};
  script.stop_requested = [](int rank) { return rank == 1; };
  RunOnRanks(script, [](CellOnRank& cell) {
    const Result<PreparedCell> prepared = Prepare(cell);
    ASSERT_FALSE(prepared.has_value());
    EXPECT_EQ(prepared.error().code, ErrorCode::kInterrupted);
    EXPECT_EQ(cell.backend.plans_prepared, 0);
  });
}

}  // namespace
}  // namespace cotune
