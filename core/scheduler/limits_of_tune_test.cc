// A tune within a budget and within the free memory.
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// A tune of one large size: each check takes 300 ms.
Tune TuneWithLongChecks(std::vector<ScriptedChoice> choices, int64_t budget_ns) {
  Tune tune;
  tune.choices = [choices](int) { return choices; };
  tune.node_sizes = {{1024}};
  tune.settings.budget_ns = budget_ns;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    return step.find(" check ") == std::string_view::npos ? 0 : 300'000'000;
  };
  return tune;
}

std::vector<std::string> RacedIn(const CellResult& cell) {
  std::vector<std::string> names;
  for (const Verdict& verdict : cell.verdicts) names.push_back(verdict.id.text());
  return names;
}

TEST(LimitsOfTuneTest, ChoicesThatTheBudgetLeavesNoTimeToCheckDoNotRace) {
  std::vector<ScriptedChoice> choices = {Scripted("a", 1000), Scripted("b", 900),
                                         Scripted("c", 800),  Scripted("d", 700),
                                         Scripted("e", 600),  Scripted("f", 500)};
  choices.back().is_default = true;
  for (const RankView& view : RunTune(TuneWithLongChecks(choices, 800'000'000))) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->unsteady_cells, 1) << "the next tune measures the others as well";
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_THAT(RacedIn(view.cells[0]),
                ElementsAre("scripted/a", "scripted/b", "scripted/c", "scripted/f"));
    ASSERT_EQ(view.cells[0].refusals.size(), 2u);
    EXPECT_EQ(view.cells[0].refusals[0].choice, "scripted/d");
    EXPECT_EQ(view.cells[0].refusals[1].choice, "scripted/e");
    EXPECT_THAT(view.cells[0].refusals[0].reason, HasSubstr("the budget of the tune ended"));
  }
}

TEST(LimitsOfTuneTest, AChoiceThatWorksIsCheckedWhateverTheBudgetIs) {
  std::vector<ScriptedChoice> choices = {Scripted("a", 1000), Scripted("b", 900),
                                         Scripted("c", 800), Scripted("d", 700),
                                         Scripted("e", 600)};
  for (const size_t wrong : {0u, 1u, 4u}) choices[wrong].wrong_on_rank = 1;
  choices.back().is_default = true;
  for (const RankView& view : RunTune(TuneWithLongChecks(choices, 1))) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 1);
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_THAT(RacedIn(view.cells[0]),
                ElementsAre("scripted/a", "scripted/b", "scripted/c", "scripted/e"));
    EXPECT_GT(view.cells[0].verdicts[2].median_ns, 0);
    ASSERT_EQ(view.cells[0].refusals.size(), 1u);
    EXPECT_EQ(view.cells[0].refusals[0].choice, "scripted/d");
  }
}

TEST(LimitsOfTuneTest, RanksThatOftenStartLateAreToldOnce) {
  for (const bool is_deferred : {true, false}) {
    Tune tune;
    tune.choices = [](int) {
      ScriptedChoice choice = Scripted("a", 1000);
      choice.late_rank = 1;
      choice.late_samples = 1000;
      choice.late_by_ns = 1'000'000;
      return std::vector<ScriptedChoice>{choice};
    };
    tune.node_sizes = {{1024, 2048}, {1024, 2048}};
    tune.settings.enable_collective_multitemplate = is_deferred;
    const std::vector<RankView> views = RunTune(tune);
    for (const RankView& view : views) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      ASSERT_THAT(view.cells, Not(IsEmpty()));
      for (const CellResult& cell : view.cells) EXPECT_EQ(cell.start_mode, StartMode::kBarrier);
    }
    if (views[0].cells[0].invalid_rounds == 0) {
      GTEST_SKIP() << "SKIPPED: no processor of its own for each of two ranks";
    }
    EXPECT_THAT(views[0].observer.warnings,
                ElementsAre(AllOf(HasSubstr("started late, 8 times in one cell"),
                                  HasSubstr("all_reduce"), HasSubstr("idle"))));
    EXPECT_THAT(views[1].observer.warnings, IsEmpty());
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
    EXPECT_THAT(
        view.outcome.error().ToText(),
        AllOf(HasSubstr("rank 1"), HasSubstr("10.0 MiB on each of 2 ranks"),
              HasSubstr("20.0 MiB are free for all of them (host memory)"), HasSubstr("--sizes")));
    EXPECT_TRUE(view.cells.empty());
  }
  tune.device = [](int) { return DeviceScript{uint64_t{21} << 20}; };
  for (const RankView& view : RunTune(tune)) EXPECT_TRUE(view.outcome.has_value());
}

}  // namespace
}  // namespace cotune
