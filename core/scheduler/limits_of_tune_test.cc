// A tune within a budget and within the free memory.
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LimitsOfTuneTest, ASpentBudgetSkipsWhatIsLeft) {
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

TEST(LimitsOfTuneTest, ABudgetIsForAllNodesInImmediateModeToo) {
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

TEST(LimitsOfTuneTest, MemoryThatOneRankLacksEndsTheTuneOnAllBeforeItBegins) {
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

}  // namespace
}  // namespace cotune
