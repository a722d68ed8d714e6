// A tune of cells that rank 0 knows.
#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

// A tune of one cell by two choices, of which scripted/a wins.
Tune TuneOfTwo(MemoryOfCells& known) {
  Tune tune;
  tune.known = &known;
  tune.choices = [](int) {
    return std::vector<ScriptedChoice>{Scripted("a", 1000), Scripted("b", 2000)};
  };
  return tune;
}

TEST(KnownCellsTuneTest, AKnownCellWhoseWinnerHasEndedATuneIsMeasuredAnewOnAllRanks) {
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

TEST(KnownCellsTuneTest, KnownCellsAreNotMeasuredAgain) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
  tune.node_sizes = {{1024, 4096}};
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
  EXPECT_EQ(third[1].lists_made, 2) << "the list of each cell once";
  EXPECT_EQ(third[1].observer.plans.at(0).known_cells, 2);
}

TEST(KnownCellsTuneTest, ThreadsShareTheWorkOnManyKnownCells) {
  MemoryOfCells known;
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice a = Scripted("a", 0);
    a.cost_ns = [](uint64_t bytes) { return bytes % 64 == 0 ? 10'000 : 90'000; };
    return std::vector<ScriptedChoice>{a, Scripted("b", 50'000)};
  };
  constexpr int kCells = 40;
  tune.node_sizes = {{}};
  for (int i = 0; i < kCells; ++i) tune.node_sizes[0].push_back(1024 + 32 * i);
  tune.known = &known;
  const std::vector<RankView> first = RunTune(tune);
  ASSERT_TRUE(first[0].outcome.has_value()) << first[0].outcome.error().ToText();
  tune.settings.precompile_threads = 4;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->known_cells, kCells);
    EXPECT_EQ(view.lists_made, kCells);
    EXPECT_EQ(view.plans_prepared, kCells);
    EXPECT_EQ(view.outcome->table.Serialize(), first[0].outcome->table.Serialize());
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/a");
    EXPECT_EQ(WinnerAt(*view.outcome, 1056, 2), "scripted/b");
  }
}

TEST(KnownCellsTuneTest, ForcedCellsAreNotMeasuredAndHaveNoWinner) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
  tune.node_sizes = {{1024, 4096}};
  tune.settings.force = ForcedChoices::Parse("all_reduce=scripted/b").value();
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 0);
    EXPECT_EQ(view.outcome->known_cells, 0);
    EXPECT_EQ(view.outcome->skipped_cells, 0);
    EXPECT_EQ(view.outcome->forced_cells, 2);
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "");
    EXPECT_EQ(view.observer.plans.at(0).cells, 0);
    EXPECT_EQ(view.observer.plans.at(0).forced_cells, 2);
    EXPECT_EQ(view.plans_prepared, 0);
  }
  EXPECT_TRUE(known.cells.empty());
  // Another collective is forced, or a choice that is not listed.
  for (const char* force : {"broadcast=scripted/b", "all_reduce=scripted/c"}) {
    tune.settings.force = ForcedChoices::Parse(force).value();
    known.cells.clear();
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->measured_cells, 2) << force;
      EXPECT_EQ(view.outcome->forced_cells, 0) << force;
    }
  }
}

TEST(KnownCellsTuneTest, AKnownCellIsDecidedByTheRulesOfThisTune) {
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

TEST(KnownCellsTuneTest, AKnownWinnerThatNoRankListsIsNamedWithItsRefusal) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
  ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
  tune.choices = [](int) {
    ScriptedChoice a = Scripted("a", 1000);
    a.refused = "it needs another network";
    return std::vector<ScriptedChoice>{a, Scripted("b", 2000)};
  };
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "");
    EXPECT_EQ(view.plans_prepared, 0);
  }
  ASSERT_EQ(views[0].observer.warnings.size(), 1u);
  EXPECT_THAT(views[0].observer.warnings.front(),
              AllOf(HasSubstr("scripted/a, which won"), HasSubstr("it needs another network")));
}

TEST(KnownCellsTuneTest, AKnownWinnerThatOneRankCannotRunIsDeclinedByName) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
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

// More than one message carries: every rank hears of all cells, and nothing is measured again.
TEST(KnownCellsTuneTest, KnownCellsOfAnyLengthReachAllRanks) {
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

// The message has no 0 copies: a rank reads 1.
TEST(KnownCellsTuneTest, RankZeroHasTheCellsThatTheOthersHaveAlsoIfTheMessageLosesSomething) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
  ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
  for (auto& [problem, cell] : known.cells) cell.buffer_copies = 0;
  const std::vector<RankView> views = RunTune(tune);
  for (const RankView& view : views) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->known_cells, 1);
    EXPECT_EQ(view.cells, views[0].cells);
    EXPECT_THAT(view.cells, Each(Field(&CellResult::buffer_copies, 1)));
  }
}

// Without this, rank 0 would go on alone and wait for ranks that have ended.
TEST(KnownCellsTuneTest, AKnownCellThatTheMessageCannotCarryEndsTheTuneOnAllRanks) {
  MemoryOfCells known;
  Tune tune = TuneOfTwo(known);
  ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
  for (auto& [problem, cell] : known.cells) cell.sm_clock_mhz = -1;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kDatabase);
    EXPECT_THAT(view.outcome.error().ToText(), HasSubstr("sm_clock_mhz"));
  }
}

TEST(KnownCellsTuneTest, KnownCellsCountInThePlanOfTheirPassOnly) {
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

}  // namespace
}  // namespace cotune
