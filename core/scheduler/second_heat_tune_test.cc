// The second heat of programs with more combinations of choices than one race has: it races those
// of the best choices of each collective, or the others of a family.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/testing/tune_on_ranks.h"
#include "core/testing/twin_recipes.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::UnorderedElementsAre;

// A tune of kSequence at one size, by NineForEach, which `change` may change on each rank.
using ChangeChoices = std::function<void(int rank, std::vector<ScriptedChoice>&)>;
Tune TuneOfSequence(ChangeChoices change = nullptr) {
  Tune tune;
  tune.choices = [change = std::move(change)](int rank) {
    std::vector<ScriptedChoice> choices = NineForEach(rank);
    if (change) change(rank, choices);
    return choices;
  };
  tune.node_programs = {kSequence};
  tune.node_sizes = {{4096}};
  return tune;
}

TEST(SecondHeatTuneTest, TheBestOfEachOfSeveralCollectivesAreCombined) {
  Tune tune = TuneOfSequence();
  MemoryOfCells memory;
  tune.known = &memory;
  const std::string best = "scripted/way3+scripted/way5";
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), best);
    ASSERT_EQ(view.cells.size(), 1u);
    // The first race has 17, the second adds those that leave the defaults in both.
    const std::vector<Verdict>& verdicts = view.cells[0].verdicts;
    EXPECT_EQ(verdicts.size(), 17u + 9u);
    for (const Verdict& verdict : verdicts) {
      EXPECT_TRUE(verdict.has_time()) << verdict.id.text();
      const int64_t steps_ns = verdict.id.text() == best ? 40'000 : 100'000;
      EXPECT_GE(verdict.median_ns, steps_ns) << verdict.id.text();
    }
  }
  // The known cell has the same winner, which is made ready although no list has it.
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 0);
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), best);
  }
}

// The first heat has 17 choices, the second 9 more. The winner is checked again after it.
TEST(SecondHeatTuneTest, TheSecondHeatChecksTheChoicesThatAreNewInIt) {
  Tune tune = TuneOfSequence();
  std::atomic<int> first_checks = 0;
  std::atomic<int> second_checks = 0;
  tune.on_step = [&](int rank, std::string_view step, int64_t /*deadline_ns*/) -> int64_t {
    if (rank != 0 || step.find(" check ") == std::string_view::npos) return 0;
    ++(step.find("combined") == std::string_view::npos ? first_checks : second_checks);
    return 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
  }
  EXPECT_EQ(first_checks, 17 + 1);
  EXPECT_EQ(second_checks, 9 + 1);
}

// 40 choices of each form do not fit into a heat of 64. The fastest is the last one, which has no
// room in the first heat; the second one has it, because its form is the fastest.
std::vector<ScriptedChoice> FortyWays(int) {
  std::vector<ScriptedChoice> choices;
  for (int i = 0; i < 40; ++i) {
    choices.push_back(Linear("way" + std::to_string(i), 500'000 - int64_t{5'000} * i, 1));
  }
  choices[0].is_default = true;
  return choices;
}

TEST(SecondHeatTuneTest, AChoiceWithoutRoomInTheFirstHeatMayWinTheSecond) {
  const TwinRecipes recipes;
  Tune tune;
  tune.choices = FortyWays;
  tune.node_programs = {kTwins};
  tune.node_sizes = {{1024}};
  tune.recipes = &recipes;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/way39?via=once");
  }
}

// Each region has two families of three choices that differ in a number. "pull" is the faster
// family, and its last choice is the fastest, although its estimate is the highest.
std::vector<ScriptedChoice> FamiliesOfRegions(int) {
  std::vector<ScriptedChoice> choices = {Linear("usual", 500'000, 1)};
  choices[0].is_default = true;
  for (const int64_t size : {1, 2, 3}) {
    for (const bool is_pull : {true, false}) {
      ScriptedChoice& choice = choices.emplace_back(
          Linear(fmt::format("{}?chunk={}", is_pull ? "pull" : "push", size), 900'000, 1));
      choice.cost_us = static_cast<double>(size);
      choice.fused_cost_ns = [=](uint64_t, size_t) {
        return (is_pull ? 300'000 : 400'000) - size * 20'000;
      };
    }
  }
  return choices;
}

TEST(SecondHeatTuneTest, TheOthersOfTheFastestFamilyOfARegionRaceInTheSecondHeat) {
  const TwinRecipes recipes(/*with_regions=*/true);
  Tune tune;
  tune.choices = FamiliesOfRegions;
  tune.node_programs = {"%x = input f32 [R, 64]\n%s = all_reduce sum %x\n%n = neg %s\nreturn %n\n"};
  tune.node_sizes = {{1024}};
  tune.recipes = &recipes;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/pull?chunk=3&fuse=1");
    const CellResult& cell = view.cells[0];
    std::vector<std::string> raced;
    std::vector<std::string> set_aside;
    for (const Verdict& verdict : cell.verdicts) {
      if (verdict.id.has_host_keys()) raced.push_back(verdict.id.text());
    }
    for (const Refusal& refusal : cell.refusals) {
      if (refusal.reason.find("differs in numbers") == std::string::npos) continue;
      set_aside.push_back(refusal.choice);
    }
    EXPECT_THAT(raced, UnorderedElementsAre(
                           "scripted/pull?chunk=1&fuse=1", "scripted/pull?chunk=2&fuse=1",
                           "scripted/pull?chunk=3&fuse=1", "scripted/push?chunk=1&fuse=1"));
    EXPECT_THAT(set_aside, UnorderedElementsAre("scripted/push?chunk=2&fuse=1",
                                                "scripted/push?chunk=3&fuse=1"));
  }
}

TEST(SecondHeatTuneTest, ACombinationThatHasEndedATuneIsLeftOut) {
  Tune tune = TuneOfSequence();
  MemoryOfCells memory;
  memory.left_out.push_back(
      {ToText(ProgramOfNode(tune, 0).anchor()), "scripted/way3+scripted/way5", "it crashed"});
  tune.known = &memory;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    // way3 with the default, or way5 with it, take as long: 120 us, and the noise of the rest.
    const std::string winner = WinnerOf(tune, *view.outcome, 0, 4096);
    EXPECT_TRUE(winner == "scripted/way3+scripted/way0" || winner == "scripted/way0+scripted/way5")
        << winner;
    ASSERT_EQ(view.cells.size(), 1u);
    bool is_refused = false;
    for (const Refusal& refusal : view.cells[0].refusals) {
      is_refused = is_refused || (refusal.choice == "scripted/way3+scripted/way5" &&
                                  refusal.reason == "it crashed");
    }
    EXPECT_TRUE(is_refused);
  }
}

TEST(SecondHeatTuneTest, TheWinnerOfTheFirstHeatMayWinTheSecond) {
  Tune tune = TuneOfSequence([](int /*rank*/, std::vector<ScriptedChoice>& choices) {
    choices[0].cost_ns = [](uint64_t bytes) { return bytes > 5000 ? 10'000 : 100'000; };
  });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/way3+scripted/way0");
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_GT(view.cells[0].verdicts.size(), 17u) << "the second heat has been run";
  }
}

// Ways 3 and 4 of the reduce_scatter differ by less than short samples show, so that both race
// again, as the default does; ways that were clearly slower do not.
TEST(SecondHeatTuneTest, WhatShortSamplesDoNotEliminateRacesInTheSecondHeat) {
  Tune tune = TuneOfSequence([](int /*rank*/, std::vector<ScriptedChoice>& choices) {
    choices[4].cost_ns = [](uint64_t bytes) { return bytes > 5000 ? 110'000 : 20'500; };
  });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/way3+scripted/way5");
    ASSERT_EQ(view.cells.size(), 1u);
    const auto verdict_of = [&](std::string_view id) -> const Verdict& {
      const std::vector<Verdict>& verdicts = view.cells[0].verdicts;
      return *std::find_if(verdicts.begin(), verdicts.end(),
                           [&](const Verdict& each) { return each.id.text() == id; });
    };
    EXPECT_EQ(verdict_of("scripted/way3+scripted/way0").outcome, Outcome::kOutpaced);
    EXPECT_EQ(verdict_of("scripted/way4+scripted/way0").outcome, Outcome::kOutpaced);
    EXPECT_EQ(verdict_of("scripted/way0").outcome, Outcome::kOutpaced);
    EXPECT_EQ(verdict_of("scripted/way8+scripted/way0").outcome, Outcome::kLostHeat);
    EXPECT_EQ(verdict_of("scripted/way0+scripted/way8").outcome, Outcome::kLostHeat);
  }
}

TEST(SecondHeatTuneTest, TheDefaultMayWinBothHeats) {
  Tune tune = TuneOfSequence([](int /*rank*/, std::vector<ScriptedChoice>& choices) {
    choices[0].cost_ns = [](uint64_t) { return 10'000; };
  });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/way0");
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_GT(view.cells[0].verdicts.size(), 17u) << "the second heat has been run";
  }
}

// Calls of this rank fail if `fails` returns true for the ways of their reduce_scatter and of the
// all_gather after it.
void FailWhere(std::vector<ScriptedChoice>& choices,
               const std::function<bool(size_t scatter, size_t gather)>& fails) {
  struct Call {
    uint64_t bytes = 0;
    size_t scatter = 0;
  };
  const auto call = std::make_shared<Call>();
  for (size_t way = 0; way < choices.size(); ++way) {
    choices[way].cost_ns = [call, cost_ns = choices[way].cost_ns](uint64_t bytes) {
      call->bytes = bytes;  // the next launch reads it
      return cost_ns(bytes);
    };
    choices[way].launch_fails = [call, way, fails] {
      if (call->bytes > 5000) return fails(call->scatter, way);
      call->scatter = way;
      return false;
    };
  }
}

// Way 5 fails on rank 1 if it runs after way 3: in the best combination, whose group is made
// anew, and in no other.
TEST(SecondHeatTuneTest, ACombinationThatFailsIsAVerdict) {
  Tune tune = TuneOfSequence([](int rank, std::vector<ScriptedChoice>& choices) {
    if (rank != 1) return;
    FailWhere(choices, [](size_t scatter, size_t gather) { return scatter == 3 && gather == 5; });
  });
  MemoryOfCells memory;
  tune.known = &memory;
  std::set<std::string> winners;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    winners.insert(WinnerOf(tune, *view.outcome, 0, 4096));
    EXPECT_EQ(view.groups_created, 2);
    ASSERT_EQ(view.cells.size(), 1u);
    for (const Verdict& verdict : view.cells[0].verdicts) {
      const bool is_best = verdict.id.text() == "scripted/way3+scripted/way5";
      EXPECT_EQ(verdict.outcome == Outcome::kLaunchFailed, is_best) << verdict.id.text();
    }
  }
  // Either of the two takes 120 us.
  ASSERT_EQ(winners.size(), 1u);
  EXPECT_TRUE(winners.contains("scripted/way3+scripted/way0") ||
              winners.contains("scripted/way0+scripted/way5"));
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 0);
    EXPECT_TRUE(winners.contains(WinnerOf(tune, *view.outcome, 0, 4096)));
  }
}

// Rank 1 is asked to stop while the first heat runs, which no step of it looks at.
TEST(SecondHeatTuneTest, AnInterruptEndsATuneBetweenTheHeatsOnAllRanks) {
  std::atomic<bool> has_raced{false};
  Tune tune = TuneOfSequence([&](int /*rank*/, std::vector<ScriptedChoice>& choices) {
    choices[3].launch_fails = [&] {
      has_raced = true;
      return false;
    };
  });
  tune.stops = [&](int rank) { return rank == 1 && has_raced; };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().code, ErrorCode::kInterrupted);
    EXPECT_TRUE(view.cells.empty()) << "what was measured by halves is not kept";
  }
}

// On rank 1 everything fails from the first combination of two ways on.
TEST(SecondHeatTuneTest, WhereNothingRunsInTheSecondHeatTheCellHasNoWinner) {
  Tune tune = TuneOfSequence([](int rank, std::vector<ScriptedChoice>& choices) {
    if (rank != 1) return;
    const auto is_over = std::make_shared<bool>(false);
    FailWhere(choices, [is_over](size_t scatter, size_t gather) {
      *is_over = *is_over || (scatter != 0 && gather != 0);
      return *is_over;
    });
  });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "");
    ASSERT_FALSE(view.observer.warnings.empty());
    EXPECT_NE(view.observer.warnings[0].find("lost_heat"), std::string::npos)
        << view.observer.warnings[0];
  }
}

// The coordinator of the test takes 1 ms a step, and the first heat of this cell about 60 ms.
TEST(SecondHeatTuneTest, TheSecondHeatRunsWhereTheBudgetLeavesTime) {
  for (const bool has_time : {false, true}) {
    Tune tune = TuneOfSequence();
    tune.settings.budget_ns = has_time ? 300'000'000 : 40'000'000;
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_TRUE(view.outcome->committed);
      ASSERT_EQ(view.cells.size(), 1u);
      EXPECT_EQ(view.cells[0].verdicts.size(), has_time ? 26u : 17u);
      const bool is_combined =
          WinnerOf(tune, *view.outcome, 0, 4096) == "scripted/way3+scripted/way5";
      EXPECT_EQ(is_combined, has_time);
    }
  }
}

// Ranks that have compiled the combinations meet in this step.
constexpr std::string_view kCompiledStep = "cell 0 compiled";

TEST(SecondHeatTuneTest, WhatCompilingTheCombinationsTakesIsOfTheBudget) {
  for (const bool is_slow : {false, true}) {
    Tune tune = TuneOfSequence();
    tune.settings.budget_ns = 10'000'000'000;
    tune.on_step = [is_slow](int, std::string_view step, int64_t) -> int64_t {
      return is_slow && step == kCompiledStep ? 10'000'000'000 : 0;
    };
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_TRUE(view.outcome->committed);
      ASSERT_EQ(view.cells.size(), 1u);
      EXPECT_EQ(view.cells[0].verdicts.size(), is_slow ? 17u : 26u);
    }
  }
}

// Notes why the winners of the recorded cells win.
class NotedReasons final : public KnownCells {
 public:
  std::optional<CellResult> Find(const Problem& /*problem*/) override { return std::nullopt; }
  Status Record(const CellResult& /*cell*/, const Winner& winner) override {
    reasons.push_back(winner.why);
    return {};
  }
  std::vector<LeftOutChoice> Begin() override { return {}; }
  std::vector<std::string> reasons;
};

// Compiling the combinations takes the rest of the budget, so that the cell has short samples
// alone.
TEST(SecondHeatTuneTest, ShortSamplesAloneDecideNoCell) {
  Tune tune = TuneOfSequence();
  tune.settings.budget_ns = 10'000'000'000;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    return step == kCompiledStep ? 10'000'000'000 : 0;
  };
  NotedReasons reasons;
  tune.known = &reasons;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/way0") << "the default";
    ASSERT_EQ(view.cells.size(), 1u);
    EXPECT_TRUE(view.cells[0].is_unsteady);
    EXPECT_EQ(VerdictOf(view.cells[0], "way3+scripted/way0").samples_ns.size(), 5u)
        << "all of them faster than the default's";
    EXPECT_EQ(view.outcome->unsteady_cells, 1);
  }
  EXPECT_EQ(reasons.reasons, (std::vector<std::string>{
                                 "the default, 200.0 us: the budget ended the measurement after "
                                 "the first rounds, which eliminate slow choices and do not show "
                                 "which one is the fastest; the next tune measures this size "
                                 "again"}));
}

// Compiling for the second heats takes more than half of the budget, and they run nevertheless.
TEST(SecondHeatTuneTest, SecondHeatsRunWhereCompilingLeavesBudget) {
  Tune tune = TuneOfSequence();
  tune.node_sizes = {{4096, 3072}};
  tune.settings.budget_ns = 20'000'000'000;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    return step == "cells compiled" ? 11'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    ASSERT_EQ(view.cells.size(), 2u);
    for (const CellResult& cell : view.cells) {
      EXPECT_GT(cell.verdicts.size(), 17u) << "the second heat has been run";
      EXPECT_FALSE(cell.is_unsteady);
    }
  }
}

// A rank may compile for all of warm_timeout, and the others wait for it as long again.
TEST(SecondHeatTuneTest, TheMeetingAfterCompilingHasTimeOfItsOwn) {
  Tune tune = TuneOfSequence();
  tune.settings.warm_timeout_ns = 1'000'000'000'000;
  std::atomic<int> meetings{0};
  const int64_t begin_ns = MonotonicClock().now_ns();
  tune.on_step = [&](int, std::string_view step, int64_t deadline_ns) -> int64_t {
    if (step == kCompiledStep) {
      ++meetings;
      EXPECT_GE(deadline_ns, begin_ns + 2 * tune.settings.warm_timeout_ns);
    }
    return 0;
  };
  for (const RankView& view : RunTune(tune)) EXPECT_TRUE(view.outcome.has_value());
  EXPECT_EQ(meetings, 2);
}

TEST(SecondHeatTuneTest, AWrongChoiceIsInNoCombination) {
  Tune tune = TuneOfSequence(
      [](int /*rank*/, std::vector<ScriptedChoice>& choices) { choices[5].wrong_on_rank = 1; });
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/way3+scripted/way0");
    ASSERT_EQ(view.cells.size(), 1u);
    std::set<std::string> with_way5;
    for (const Verdict& verdict : view.cells[0].verdicts) {
      const bool uses_way5 = verdict.id.text().find("way5") != std::string::npos;
      if (uses_way5) with_way5.insert(verdict.id.text());
      EXPECT_EQ(verdict.outcome == Outcome::kWrongResult, uses_way5) << verdict.id.text();
    }
    EXPECT_EQ(with_way5, (std::set<std::string>{"scripted/way5+scripted/way0",
                                                "scripted/way0+scripted/way5"}));
  }
}

}  // namespace
}  // namespace cotune
