// The stages of a tune from its nodes to the table.
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

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

// A cell without a winner has one warning.
TEST(SchedulerTest, WarningsOfCellsThatEveryBackendRefusesAreMarked) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice refused = Scripted("odd", 1);
    refused.refused = "needs an even number of ranks";
    return std::vector<ScriptedChoice>{refused};
  };
  for (const RankView& view : RunTune(tune)) {
    EXPECT_THAT(view.observer.refused_cells,
                testing::ElementsAre(
                    testing::HasSubstr("no backend offers a choice (scripted/odd: needs an even")));
  }
  tune.choices = [](int) {
    ScriptedChoice failing = Scripted("failing", 1);
    failing.prepare_fails_on_rank = 0;
    return std::vector<ScriptedChoice>{failing};
  };
  for (const RankView& view : RunTune(tune)) {
    EXPECT_THAT(view.observer.warnings,
                testing::ElementsAre(testing::HasSubstr("no choice could be timed")));
    EXPECT_THAT(view.observer.refused_cells, testing::IsEmpty());
  }
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

TEST(SchedulerTest, AnInterruptThatOneRankHearsOfEndsAllBeforeTheyMeasure) {
  Tune tune;
  tune.world_size = 3;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.interrupted_ranks = {1};
  int pre_syncs = 0;
  for (const RankView& view : RunTune(tune, &pre_syncs)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kInterrupted);
    EXPECT_EQ(view.outcome.error().what, "the tune was interrupted");
    EXPECT_TRUE(view.cells.empty());
  }
  EXPECT_EQ(pre_syncs, 0);
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

// The ranks compare them before any of them prepares a choice, and so before one can be late.
TEST(SchedulerTest, DifferentSettingsAreNamedBeforeAnythingIsMade) {
  for (const bool is_deferred : {true, false}) {
    SCOPED_TRACE(is_deferred);
    Tune tune;
    tune.world_size = 3;
    tune.late_ranks = {1};
    tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
    tune.settings.enable_collective_multitemplate = is_deferred;
    tune.change_settings = [](int rank, TuningSettings& settings) {
      if (rank == 1) settings.collective_benchmark_nruns = 49;
    };
    int pre_syncs = 0;
    for (const RankView& view : RunTune(tune, &pre_syncs)) {
      ASSERT_FALSE(view.outcome.has_value());
      EXPECT_EQ(view.outcome.error().code, ErrorCode::kDisagreement);
      EXPECT_EQ(view.outcome.error().what,
                "rank 1 disagrees about 'setting collective_benchmark_nruns': rank 1 has '49', and "
                "the other ranks have '50'");
      EXPECT_EQ(view.outcome.error().ranks, std::vector<int>{1});
      EXPECT_EQ(view.plans_prepared, 0);
    }
    EXPECT_EQ(pre_syncs, 0);
  }
}

// The cause is named, not the nodes that follow from it.
TEST(SchedulerTest, ASettingThatMakesOtherNodesIsNamed) {
  Tune tune;
  tune.choices = [](int) { return std::vector<ScriptedChoice>{Scripted("a", 1000)}; };
  tune.node_sizes = {{}};
  tune.settings.collective_multi_kernel_hints_bytes = {2048};
  tune.change_settings = [](int rank, TuningSettings& settings) {
    if (rank == 0) settings.collective_multi_kernel_hints_bytes = {4096};
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().what,
              "rank 1 disagrees about 'setting collective_multi_kernel_hints_bytes': rank 1 has "
              "'2048', and rank 0 has '4096'");
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

}  // namespace
}  // namespace cotune
