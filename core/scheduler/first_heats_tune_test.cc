// Tunes of several cells with two heats: the first heats of all of them run before the choices of
// the second heats are made ready.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;

constexpr char kOthers[] =
    "%x = input f32 [R, 32]\n%s = reduce_scatter sum %x\n%w = cast %s, to=f64\n"
    "%y = all_gather %w\nreturn %y\n";

// The best combination is in the second heat: choice 3 of small operands and 5 of large ones.
Tune TuneOfTwoPrograms() {
  Tune tune;
  tune.choices = NineForEach;
  tune.node_programs = {kSequence, kOthers};
  tune.node_sizes = {{4096}, {4096}};
  return tune;
}

// The phases of a tune by the names of its steps on rank 0, in order.
class Phases {
 public:
  // "cell 0 combined 3 check scripted/way3" is of phase "cell 0 combined".
  void Add(int rank, std::string_view step) {
    if (rank != 0 || !step.starts_with("cell")) return;
    std::string phase;
    for (const std::string_view word : {"cells compiled", "cell 0 compiled", "cell 1 compiled",
                                        "cell 0 combined", "cell 1 combined", "cell 0", "cell 1"}) {
      if (!step.starts_with(word)) continue;
      phase = word;
      break;
    }
    if (phases_.empty() || phases_.back() != phase) phases_.push_back(phase);
  }
  const std::vector<std::string>& all() const { return phases_; }

 private:
  std::vector<std::string> phases_;
};

TEST(FirstHeatsTuneTest, TheSecondHeatsOfAllCellsAreMadeReadyTogether) {
  Tune tune = TuneOfTwoPrograms();
  Phases phases;
  tune.on_step = [&](int rank, std::string_view step, int64_t) -> int64_t {
    phases.Add(rank, step);
    return 0;
  };
  const std::vector<RankView> deferred = RunTune(tune);
  EXPECT_THAT(phases.all(), ElementsAre("cell 0", "cell 1", "cells compiled", "cell 0 combined",
                                        "cell 1 combined"));
  tune.settings.enable_collective_multitemplate = false;
  Phases of_immediate;
  tune.on_step = [&](int rank, std::string_view step, int64_t) -> int64_t {
    of_immediate.Add(rank, step);
    return 0;
  };
  const std::vector<RankView> immediate = RunTune(tune);
  EXPECT_THAT(of_immediate.all(), ElementsAre("cell 0", "cell 0 compiled", "cell 0 combined",
                                              "cell 0", "cell 0 compiled", "cell 0 combined"));
  for (const RankView& view : deferred) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 2);
    EXPECT_EQ(view.outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) {
      EXPECT_EQ(VerdictOf(cell, "way3+scripted/way5").outcome, Outcome::kTimed);
    }
  }
}

// The first launch in the second heat of a cell is on operands that the first heat has left, or on
// new ones: either holds right data, so that a check finds nothing.
TEST(FirstHeatsTuneTest, CellsOnRegisteredMemoryDoNotKeepTheirOperands) {
  Tune tune = TuneOfTwoPrograms();
  tune.buffer_class = BufferClass::kSymmetric;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) {
      for (const Verdict& verdict : cell.verdicts) EXPECT_EQ(verdict.wrong_elements, 0u);
      EXPECT_EQ(VerdictOf(cell, "way3+scripted/way5").outcome, Outcome::kTimed);
    }
  }
}

// Rank 1 is asked to stop in the first heat of the second cell, whose last step does not ask.
TEST(FirstHeatsTuneTest, AnInterruptBetweenTheHeatsEndsTheTuneOnAllRanks) {
  Tune tune = TuneOfTwoPrograms();
  std::atomic<bool> has_begun{false};
  tune.on_step = [&](int rank, std::string_view step, int64_t) -> int64_t {
    has_begun = has_begun || (rank == 1 && step.starts_with("cell 1 ") &&
                              step.find("check") != std::string_view::npos);
    return 0;
  };
  tune.stops = [&](int rank) { return rank == 1 && has_begun; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kInterrupted);
    EXPECT_TRUE(view.cells.empty());
  }
}

// A choice that fails on one rank in the first heat of the last cell has its group made anew, with
// the plans of the cell before, which races on in its second heat.
TEST(FirstHeatsTuneTest, AFailureInOneCellLeavesTheHeatsOfAnotherWhole) {
  Tune tune = TuneOfTwoPrograms();
  std::atomic<bool> is_second_cell{false};
  std::atomic<int> failures{0};
  tune.on_step = [&](int, std::string_view step, int64_t) -> int64_t {
    is_second_cell = step.starts_with("cell 1 ");
    return 0;
  };
  tune.choices = [&](int rank) {
    std::vector<ScriptedChoice> choices = NineForEach(rank);
    if (rank == 1) {
      choices[7].launch_fails = [&] { return is_second_cell && failures++ == 0; };
    }
    return choices;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.groups_created, 2);
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) {
      EXPECT_EQ(VerdictOf(cell, "way3+scripted/way5").outcome, Outcome::kTimed);
    }
    const auto failed = [](const CellResult& cell) {
      return std::count_if(cell.verdicts.begin(), cell.verdicts.end(), [](const Verdict& verdict) {
        return verdict.outcome == Outcome::kLaunchFailed;
      });
    };
    EXPECT_EQ(failed(view.cells[0]) + failed(view.cells[1]), 1);
  }
  EXPECT_GE(failures, 1);
}

// The step after the first heat of the first cell takes all of the budget.
TEST(FirstHeatsTuneTest, ABudgetThatEndsInTheFirstHeatsSkipsCellsThatHaveNotBegun) {
  Tune tune = TuneOfTwoPrograms();
  tune.settings.budget_ns = 20'000'000'000;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    const bool is_first_check = step.starts_with("cell 0 ") && step.ends_with("buffers");
    return is_first_check ? 20'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 1);
    EXPECT_EQ(view.outcome->skipped_cells, 1);
    EXPECT_EQ(view.outcome->unsteady_cells, 1) << "short samples decide nothing";
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_TRUE(view.cells[0].is_unsteady);
  }
}

// Compiling for the second heats takes the rest of the budget: both cells keep their first heat.
TEST(FirstHeatsTuneTest, ABudgetThatEndsBetweenTheHeatsLosesNoCellThatHasBegun) {
  Tune tune = TuneOfTwoPrograms();
  tune.settings.budget_ns = 20'000'000'000;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    return step == "cells compiled" ? 20'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 2);
    EXPECT_EQ(view.outcome->skipped_cells, 0);
    EXPECT_EQ(view.outcome->unsteady_cells, 2);
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) EXPECT_TRUE(cell.is_unsteady);
  }
}

// As before, but few runs leave no rounds for short samples, so that the first heats decide.
TEST(FirstHeatsTuneTest, FirstHeatsOfFullSamplesDecideIfTheBudgetEnds) {
  Tune tune = TuneOfTwoPrograms();
  tune.settings.collective_benchmark_nruns = 20;
  tune.settings.budget_ns = 20'000'000'000;
  std::atomic<bool> has_second{false};
  tune.on_step = [&](int, std::string_view step, int64_t) -> int64_t {
    has_second = has_second || step.find("combined") != std::string_view::npos;
    return step == "cells compiled" ? 20'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 2);
    EXPECT_EQ(view.outcome->unsteady_cells, 0);
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) {
      EXPECT_FALSE(cell.is_unsteady);
      EXPECT_GE(VerdictOf(cell, "way3+scripted/way0").samples_ns.size(), 8u);
    }
  }
  EXPECT_FALSE(has_second);
}

}  // namespace
}  // namespace cotune
