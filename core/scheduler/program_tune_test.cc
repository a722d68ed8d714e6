// Tunes of programs, mixed with plain collectives: both modes find the same winners, and no two
// ranks end with different ones.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/testing/random_program.h"
#include "core/testing/tune_on_ranks.h"
#include "core/testing/twin_recipes.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::UnorderedElementsAre;

// The collectives differ in size, so that one may want another choice than the other.
constexpr char kSequence[] =
    "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n"
    "%s = reduce_scatter sum %x\n%n = rms_norm %s, %g\n%w = cast %n, to=f64\n%y = all_gather %w\n"
    "return %y\n";
constexpr char kNorm[] =
    "%x = input bf16 [R, 64]\n%r = input bf16 [R, 64] replicated\n"
    "%g = input bf16 [1, 64] replicated\n%s = all_reduce sum %x\n%t = add %s, %r\n"
    "%y = rms_norm %t, %g\nreturn %y, %t into %r\n";

ScriptedChoice Linear(std::string name, int64_t base_ns, int64_t ns_per_byte) {
  ScriptedChoice choice = Scripted(std::move(name), 0);
  choice.cost_ns = [=](uint64_t bytes) {
    return base_ns + static_cast<int64_t>(bytes) * ns_per_byte;
  };
  return choice;
}

std::vector<ScriptedChoice> LatencyAndBandwidth(int) {
  std::vector<ScriptedChoice> choices = {Linear("usual", 900'000, 9), Linear("latency", 10'000, 10),
                                         Linear("bandwidth", 60'000, 1)};
  choices[0].is_default = true;
  choices[1].noise_ns = 30;
  choices[2].noise_ns = 50;
  return choices;
}

// The winner of node `node` at this size; "": the table has none.
std::string WinnerOf(const Tune& tune, const TuneOutcome& outcome, size_t node, uint64_t bytes) {
  const Program program = ProgramOfNode(tune, node);
  const Problem problem = program.ProblemAt(bytes, 7);
  const int32_t index = outcome.table.Lookup(DispatchKey::Of(program.anchor()), problem.bytes());
  return index == DispatchTable::kNoChoice ? "" : outcome.table.choices()[index].text();
}

TEST(ProgramTuneTest, ImmediateAndDeferredModeFindTheSameWinners) {
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {kSequence, "", kNorm};
  tune.node_sizes = {{4096, 6144, 65536}, {1024, 65536}, {1024, 32768}};
  int deferred_syncs = 0;
  const std::vector<RankView> deferred = RunTune(tune, &deferred_syncs);
  tune.settings.enable_collective_multitemplate = false;
  int immediate_syncs = 0;
  const std::vector<RankView> immediate = RunTune(tune, &immediate_syncs);
  EXPECT_EQ(deferred_syncs, 1);
  EXPECT_EQ(immediate_syncs, 3);
  for (const RankView& view : immediate) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
  }
  for (const RankView& view : deferred) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
    // By hand: latency is faster below 5555 bytes. The all_gather has twice the bytes.
    const auto winner = [&](size_t node, uint64_t bytes) {
      return WinnerOf(tune, *view.outcome, node, bytes);
    };
    EXPECT_EQ(winner(0, 6144), "scripted/bandwidth");
    EXPECT_EQ(winner(0, 4096), "scripted/latency+scripted/bandwidth");
    EXPECT_EQ(winner(1, 1024), "scripted/latency");
    EXPECT_EQ(winner(1, 65536), "scripted/bandwidth");
    EXPECT_EQ(winner(2, 1024), "scripted/latency");
    EXPECT_EQ(winner(2, 32768), "scripted/bandwidth");
  }
}

// Nine choices for each of two collectives, 81 combinations: more than one race has. The best is
// neither the default of one nor of the other.
std::vector<ScriptedChoice> NineForEach(int) {
  std::vector<ScriptedChoice> choices;
  for (int i = 0; i < 9; ++i) {
    ScriptedChoice choice = Scripted(fmt::format("way{}", i), 0);
    choice.is_default = i == 0;
    // The reduce_scatter is of 4096 bytes, the all_gather of 8192. Way 3 is the best of the one,
    // way 5 of the other.
    choice.cost_ns = [i](uint64_t bytes) {
      const bool is_best = bytes > 5000 ? i == 5 : i == 3;
      return is_best ? 20'000 : 100'000 + 2'000 * i;
    };
    choices.push_back(std::move(choice));
  }
  return choices;
}

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

TEST(ProgramTuneTest, TheBestOfEachOfSeveralCollectivesAreCombined) {
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
TEST(ProgramTuneTest, TheSecondHeatChecksTheChoicesThatAreNewInIt) {
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

// Both all_reduces have the same operand, so that one of them is enough.
constexpr char kTwins[] =
    "%x = input f32 [R, 64]\n%a = all_reduce sum %x\n%b = all_reduce sum %x\n%y = relu %a\n"
    "%z = neg %b\nreturn %y, %z\n";

TEST(ProgramTuneTest, ASecondFormIsListedRacedKeptAndMadeReadyAgain) {
  const TwinRecipes recipes;
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {kTwins};
  tune.node_sizes = {{1024, 65536}};
  tune.recipes = &recipes;
  MemoryOfCells memory;
  tune.known = &memory;
  for (const bool is_known : {false, true}) {
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->measured_cells, is_known ? 0 : 2);
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/latency?via=once");
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth?via=once");
      ASSERT_EQ(view.cells.size(), 2u);
      for (const CellResult& cell : view.cells) {
        std::set<std::string> raced;
        for (const Verdict& verdict : cell.verdicts) {
          EXPECT_TRUE(verdict.has_time()) << verdict.id.text() << ": " << verdict.reason;
          EXPECT_EQ(verdict.is_default, verdict.id.text() == "scripted/usual");
          raced.insert(verdict.id.text());
        }
        EXPECT_EQ(raced,
                  (std::set<std::string>{"scripted/usual", "scripted/latency", "scripted/bandwidth",
                                         "scripted/usual?via=once", "scripted/latency?via=once",
                                         "scripted/bandwidth?via=once"}));
      }
    }
  }
  // A job without that form cannot run the winners that are known, and leaves them out.
  tune.recipes = nullptr;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "");
  }
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

TEST(ProgramTuneTest, AChoiceWithoutRoomInTheFirstHeatMayWinTheSecond) {
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

// Each all_reduce may absorb the operation that reads its value. Fused, it costs 8 us more than
// bare where it is small, and 8 us less where it is large; a part costs nothing.
std::vector<ScriptedChoice> FusesLarge(int) {
  std::vector<ScriptedChoice> choices = LatencyAndBandwidth(0);
  choices[2].fused_cost_ns = [](uint64_t bytes, size_t /*operations*/) {
    return 60'000 + static_cast<int64_t>(bytes) + (bytes > 5000 ? -8'000 : 8'000);
  };
  return choices;
}

TEST(ProgramTuneTest, ARegionIsListedRacedAndRunWhereItIsFaster) {
  const TwinRecipes recipes(/*with_regions=*/true);
  Tune tune;
  tune.choices = FusesLarge;
  tune.node_programs = {
      "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n%s = all_reduce sum %x\n"
      "%n = neg %s\n%y = add %n, %g\n%z = all_reduce sum %y\n%o = relu %z\nreturn %o\n"};
  tune.node_sizes = {{1024, 65536}};
  tune.recipes = &recipes;
  MemoryOfCells memory;
  tune.known = &memory;
  for (const bool is_known : {false, true}) {
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->measured_cells, is_known ? 0 : 2);
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/latency");
      // The surroundings of the two differ, and their keys do not.
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth?fuse=1");
    }
  }
  // A rule leaves all of it out.
  tune.known = nullptr;
  tune.settings.fusion.enabled = false;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth");
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

TEST(ProgramTuneTest, TheOthersOfTheFastestFamilyOfARegionRaceInTheSecondHeat) {
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

TEST(ProgramTuneTest, ACombinationThatHasEndedATuneIsLeftOut) {
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

TEST(ProgramTuneTest, TheWinnerOfTheFirstHeatMayWinTheSecond) {
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
TEST(ProgramTuneTest, WhatShortSamplesDoNotEliminateRacesInTheSecondHeat) {
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

TEST(ProgramTuneTest, TheDefaultMayWinBothHeats) {
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

// Calls of this rank fail where `fails` says so of the ways of their reduce_scatter and of the
// all_gather behind it.
void FailWhere(std::vector<ScriptedChoice>& choices,
               const std::function<bool(size_t scatter, size_t gather)>& fails) {
  struct Call {
    uint64_t bytes = 0;
    size_t scatter = 0;
  };
  const auto call = std::make_shared<Call>();
  for (size_t way = 0; way < choices.size(); ++way) {
    choices[way].cost_ns = [call, cost_ns = choices[way].cost_ns](uint64_t bytes) {
      call->bytes = bytes;  // of the launch that asks next
      return cost_ns(bytes);
    };
    choices[way].launch_fails = [call, way, fails] {
      if (call->bytes > 5000) return fails(call->scatter, way);
      call->scatter = way;
      return false;
    };
  }
}

// Way 5 fails on rank 1 where it runs behind way 3: in the best combination, whose group is made
// anew, and in no other.
TEST(ProgramTuneTest, ACombinationThatFailsIsAVerdict) {
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
TEST(ProgramTuneTest, AnInterruptEndsATuneBetweenTheHeatsOnAllRanks) {
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
TEST(ProgramTuneTest, WhereNothingRunsInTheSecondHeatTheCellHasNoWinner) {
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
TEST(ProgramTuneTest, TheSecondHeatRunsWhereTheBudgetLeavesTime) {
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

TEST(ProgramTuneTest, WhatCompilingTheCombinationsTakesIsOfTheBudget) {
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
TEST(ProgramTuneTest, ShortSamplesAloneDecideNoCell) {
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
    EXPECT_EQ(VerdictOf(view.cells[0], "way3+scripted/way0").samples_ns.size(), 4u)
        << "all of them faster than the default's";
    EXPECT_EQ(view.outcome->unsteady_cells, 1);
  }
  EXPECT_EQ(reasons.reasons, (std::vector<std::string>{
                                 "the default, 200.0 us: the budget ended the measurement after "
                                 "the first rounds, which eliminate slow choices and do not show "
                                 "which one is the fastest; the next tune measures this size "
                                 "again"}));
}

// The first cell takes more than its half of the budget before its second heat, and the second heat
// runs nevertheless.
TEST(ProgramTuneTest, ACellThatHasUsedItsShareOfTheBudgetIsDecidedByItsSecondHeat) {
  Tune tune = TuneOfSequence();
  tune.node_sizes = {{4096, 3072}};
  tune.settings.budget_ns = 20'000'000'000;
  tune.on_step = [](int, std::string_view step, int64_t) -> int64_t {
    return step == kCompiledStep ? 11'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    ASSERT_GE(view.cells.size(), 1u);
    EXPECT_EQ(view.cells[0].verdicts.size(), 26u);
    EXPECT_FALSE(view.cells[0].is_unsteady);
  }
}

// A rank may compile for all of warm_timeout, and the others wait for it as long again.
TEST(ProgramTuneTest, TheMeetingAfterCompilingHasTimeOfItsOwn) {
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

TEST(ProgramTuneTest, AWrongChoiceIsInNoCombination) {
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

// The last collective depends on none of the others and runs in front of the second.
TEST(ProgramTuneTest, ChoicesBelongToTheirCollectivesInWhateverOrderTheseRun) {
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {
      "%x = input f32 [R, 64]\n%z = input f32 [R, 1]\n"
      "%a = reduce_scatter sum %x\n%b = mul %a, 2\n%c = all_gather %b\n%d = all_reduce max %z\n"
      "return %c, %d\n"};
  tune.node_sizes = {{65536}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536),
              "scripted/bandwidth+scripted/bandwidth+scripted/latency");
  }
}

TEST(ProgramTuneTest, AChoiceThatIsWrongInOneCollectiveNeverWins) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice wrong = Linear("wrong", 1, 0);
    wrong.wrong_on_rank = 1;
    return std::vector<ScriptedChoice>{Linear("right", 50'000, 0), wrong};
  };
  tune.node_programs = {kSequence, kNorm};
  tune.node_sizes = {{4096}, {4096}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/right");
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 1, 4096), "scripted/right");
  }
}

// The first output is replicated by dataflow, the second is not.
constexpr char kNormAndStream[] =
    "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n%s = all_reduce sum %x\n"
    "%y = rms_norm %s, %g\n%v = mul %y, %x\n"
    "%z = exp %v\nreturn %y, %z\n";

TEST(ProgramTuneTest, BitsThatDependOnTheRankAreWrongIfTheChoiceIsReproducibleElseANote) {
  for (const int ranks : {2, 3}) {
    for (const bool is_in_replicated : {true, false}) {
      Tune tune;
      tune.world_size = ranks;
      tune.choices = [](int) {
        std::vector<ScriptedChoice> choices = {Linear("reproducible", 10'000, 0),
                                               Linear("other", 50'000, 0)};
        choices[0].is_reproducible = true;
        choices[1].is_default = true;
        return choices;
      };
      tune.node_programs = {kNormAndStream};
      tune.node_sizes = {{4096}};
      tune.part_ulp_on_rank = ranks - 1;
      tune.part_ulp_is_in_replicated = is_in_replicated;
      const std::string difference =
          fmt::format("output 1 has other bits on rank {} than on rank{}", ranks - 1,
                      ranks == 2 ? " 0" : "s 0, 1");
      for (const RankView& view : RunTune(tune)) {
        ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
        ASSERT_EQ(view.cells.size(), 1u);
        const Verdict& reproducible = VerdictOf(view.cells[0], "reproducible");
        const Verdict& other = VerdictOf(view.cells[0], "other");
        EXPECT_TRUE(other.has_time());
        if (!is_in_replicated) {
          EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/reproducible");
          EXPECT_EQ(reproducible.reason + other.reason, "");
          continue;
        }
        EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/other");
        EXPECT_EQ(reproducible.outcome, Outcome::kWrongResult);
        EXPECT_EQ(reproducible.wrong_elements, 1u);
        EXPECT_EQ(
            reproducible.reason,
            "its bits depend on the rank, although it is listed as reproducible: " + difference);
        EXPECT_EQ(other.reason, "its bits depend on the rank: " + difference);
      }
    }
  }
}

// A tune that differs with its seed, and what one of its ranks does otherwise.
class RandomTune {
 public:
  explicit RandomTune(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ull + 3) {
    tune_.world_size = 2 + Below(3);
    tune_.settings.min_rounds = 5;
    tune_.settings.collective_benchmark_nruns = 12;
    tune_.node_sizes.clear();
    for (int nodes = 1 + Below(4); nodes > 0; --nodes) {
      const auto program = static_cast<uint64_t>(Below(40));
      const std::string random = RandomProgram(program, tune_.world_size);
      const std::string texts[] = {"", kSequence, random, random};
      tune_.node_programs.push_back(texts[Below(4)]);
      tune_.node_sizes.push_back({uint64_t{1024} << Below(2)});
    }
    MakeChoices();
    if (Below(12) == 0) tune_.late_ranks = {Below(tune_.world_size)};
    if (Below(4) == 0) MakeOneDiffer();
  }

  Tune& tune() { return tune_; }
  // From 1; 0: all ranks have the same nodes.
  size_t odd_node() const { return odd_node_; }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }

  // Costs differ between the ranks, as measured times do; what is wrong with a choice is so on one
  // rank only.
  void MakeChoices() {
    std::vector<ScriptedChoice> choices;
    for (const char* name : {"a", "b", "c"}) {
      choices.push_back(Linear(name, 5'000 + Below(60'000), Below(20)));
      choices.back().noise_ns = Below(3000);
      const int odd = Below(tune_.world_size);
      switch (name == std::string("a") ? 0 : Below(8)) {
        case 1:
          choices.back().prepare_fails_on_rank = odd;
          break;
        case 2:
          choices.back().launch_fails_on_rank = odd;
          break;
        case 3:
          choices.back().wrong_on_rank = odd;
          break;
        default:
          break;
      }
    }
    choices[static_cast<size_t>(Below(3))].is_default = true;
    const int skew_ns = Below(9000);
    tune_.choices = [choices, skew_ns](int rank) {
      std::vector<ScriptedChoice> own = choices;
      for (ScriptedChoice& choice : own) choice.noise_ns += skew_ns * rank;
      return own;
    };
  }

  void MakeOneDiffer() {
    const int odd_rank = Below(tune_.world_size);
    const auto at = static_cast<size_t>(Below(static_cast<int>(tune_.node_sizes.size())));
    const std::string other = RandomProgram(100 + random_() % 40, tune_.world_size);
    odd_node_ = at + 1;
    tune_.change_nodes = [=](int rank, auto& programs, auto&) {
      if (rank == odd_rank) programs[at] = other;
    };
  }

  std::mt19937_64 random_;
  Tune tune_;
  size_t odd_node_ = 0;
};

// What is wrong with the ends of the ranks; "" when nothing is.
std::string CheckEnds(RandomTune& random, const std::vector<RankView>& views) {
  const RankView& first = views[0];
  for (const RankView& view : views) {
    if (view.outcome.has_value() != first.outcome.has_value()) return "only some ranks fail";
    if (!view.outcome) {
      std::string text = view.outcome.error().ToText();
      if (text != first.outcome.error().ToText()) return "ranks fail with different errors";
      const std::string named = fmt::format("in node {}:", random.odd_node());
      if (random.odd_node() == 0 || text.find(named) == std::string::npos) return text;
      continue;
    }
    if (random.odd_node() != 0) return "ranks with other nodes have agreed";
    if (view.outcome->committed != first.outcome->committed) return "only some ranks commit";
    if (view.outcome->table.Serialize() != first.outcome->table.Serialize()) {
      return "two ranks have different winners";
    }
    const bool is_late = !random.tune().late_ranks.empty();
    if (view.outcome->committed == is_late) return "the window does not decide";
  }
  return "";
}

TEST(ProgramTuneTest, RandomTunesEndAlikeOnAllRanksAndInBothModes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t kTunes = 50;
#else
  constexpr uint64_t kTunes = 250;
#endif
  std::map<std::string, int> seen;
  for (uint64_t seed = 1; seed <= kTunes; ++seed) {
    RandomTune random(seed);
    const std::vector<RankView> deferred = RunTune(random.tune());
    ASSERT_EQ(CheckEnds(random, deferred), "") << "deferred, seed " << seed;
    random.tune().settings.enable_collective_multitemplate = false;
    const std::vector<RankView> immediate = RunTune(random.tune());
    ASSERT_EQ(CheckEnds(random, immediate), "") << "immediate, seed " << seed;
    if (!deferred[0].outcome) {
      ++seen["differ"];
      continue;
    }
    if (!deferred[0].outcome->committed) {
      ++seen["late"];
      continue;
    }
    ASSERT_EQ(deferred[0].outcome->table.Serialize(), immediate[0].outcome->table.Serialize())
        << "seed " << seed;
    for (const ChoiceId& id : deferred[0].outcome->table.choices()) {
      ++seen[id.text().find('+') == std::string::npos ? "one choice" : "several choices"];
    }
  }
  // Every ending is reached, so the tunes are not vacuous.
  for (const char* end : {"differ", "late", "one choice", "several choices"}) {
    EXPECT_GT(seen[end], static_cast<int>(kTunes / 80)) << end;
  }
}

}  // namespace
}  // namespace cotune
