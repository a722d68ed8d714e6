// A tune whose sizes learn from each other (core/choice/neighbour_pruning.h).
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uint64_t kLarge = 65536;

// A default, five choices that are fast, and those of the test. The sizes are first ones, but for
// 4096 and 65536.
Tune TuneWith(std::vector<ScriptedChoice> others) {
  Tune tune;
  tune.settings.neighbour_pruning = true;
  tune.node_sizes = {{1024, 4096, 16384, kLarge}};
  tune.choices = [others](int) {
    std::vector<ScriptedChoice> choices = {Scripted("usual", 50'000)};
    choices[0].is_default = true;
    for (const char* name : {"a", "b", "c", "d", "e"}) choices.push_back(Scripted(name, 20'000));
    choices.insert(choices.end(), others.begin(), others.end());
    return choices;
  };
  return tune;
}

// A choice that takes `ns` up to a size and `larger_ns` beyond it.
ScriptedChoice Stepped(std::string name, int64_t ns, uint64_t last_bytes, int64_t larger_ns) {
  ScriptedChoice choice = Scripted(std::move(name), ns);
  choice.cost_ns = [=](uint64_t bytes) { return bytes <= last_bytes ? ns : larger_ns; };
  return choice;
}

bool HasVerdictOf(const CellResult& cell, const std::string& name) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.id.text() == "scripted/" + name;
  });
}

// The reason for which the choice did not race in the cell; "": none.
std::string WhyNotRaced(const CellResult& cell, const std::string& name) {
  for (const Refusal& refusal : cell.refusals) {
    if (refusal.choice == "scripted/" + name) return refusal.reason;
  }
  return "";
}

// Remembers the choices that are launched first in each cell, as rank 0 notes them.
class NotedAttempts final : public KnownCells {
 public:
  std::optional<CellResult> Find(const Problem& problem) override { return memory.Find(problem); }
  void NoteAttempt(const Problem& problem, const ChoiceId* choice) override {
    if (choice != nullptr) attempts[problem.bytes()].push_back(choice->text());
    if (sizes.empty() || sizes.back() != problem.bytes()) sizes.push_back(problem.bytes());
  }
  Status Record(const CellResult& cell, const Winner& winner) override {
    return memory.Record(cell, winner);
  }
  MemoryOfCells memory;
  std::map<uint64_t, std::vector<std::string>> attempts;
  std::vector<uint64_t> sizes;
};

TEST(PrunedCellsTuneTest, AChoiceThatIsSlowAroundASizeIsNotLaunchedAtIt) {
  NotedAttempts noted;
  Tune tune = TuneWith({Scripted("slow", 200'000)});
  tune.known = &noted;
  tune.world_size = 3;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->measured_cells, 4);
    ASSERT_THAT(view.cells, SizeIs(4));
    EXPECT_TRUE(HasVerdictOf(view.cells[0], "slow"));
    EXPECT_TRUE(HasVerdictOf(view.cells[2], "slow"));
    EXPECT_FALSE(HasVerdictOf(view.cells[1], "slow"));
    EXPECT_FALSE(HasVerdictOf(view.cells[3], "slow"));
    EXPECT_EQ(WhyNotRaced(view.cells[1], "slow"),
              "not raced: 10.0 and 10.0 times the winner's time at 1024 and 16384 bytes");
    EXPECT_EQ(WhyNotRaced(view.cells[3], "slow"),
              "not raced: 10.0 and 10.0 times the winner's time at 1024 and 16384 bytes");
    for (const CellResult& cell : view.cells) EXPECT_TRUE(HasVerdictOf(cell, "usual"));
  }
  EXPECT_THAT(noted.sizes, ElementsAre(1024, 16384, kLarge, 4096));
  EXPECT_THAT(noted.attempts.at(16384), Contains("scripted/slow"));
  EXPECT_THAT(noted.attempts.at(4096), Not(Contains("scripted/slow")));
}

TEST(PrunedCellsTuneTest, TheSettingDecidesWhichChoicesRace) {
  NotedAttempts noted;
  Tune tune = TuneWith({Scripted("slow", 200'000)});
  tune.known = &noted;
  tune.settings.neighbour_pruning = false;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    for (const CellResult& cell : view.cells) {
      EXPECT_TRUE(HasVerdictOf(cell, "slow"));
      EXPECT_THAT(cell.refusals, IsEmpty());
    }
  }
  EXPECT_THAT(noted.sizes, ElementsAre(1024, 4096, 16384, kLarge));
  // All ranks have one setting.
  tune.known = nullptr;
  tune.change_settings = [](int rank, TuningSettings& settings) {
    settings.neighbour_pruning = rank == 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_THAT(view.outcome.error().ToText(), HasSubstr("setting neighbour_pruning"));
  }
}

TEST(PrunedCellsTuneTest, AChoiceThatCrossesOverRacesAndWins) {
  Tune tune = TuneWith({Stepped("crosses", 200'000, 2048, 10'000), Scripted("slow", 200'000)});
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/a");
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/crosses");
    EXPECT_EQ(WinnerAt(*view.outcome, kLarge, 2), "scripted/crosses");
    EXPECT_FALSE(HasVerdictOf(view.cells[1], "slow"));
  }
}

TEST(PrunedCellsTuneTest, AChoiceThatFailsAtANeighbourRaces) {
  ScriptedChoice fails = Scripted("fails", 200'000);
  fails.wrong_on_rank = 1;
  Tune tune = TuneWith({fails});
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    for (const CellResult& cell : view.cells) {
      EXPECT_EQ(VerdictOf(cell, "fails").outcome, Outcome::kWrongResult);
      EXPECT_EQ(WhyNotRaced(cell, "fails"), "");
    }
  }
}

// A choice that fails at one size, on all ranks, in its launch.
ScriptedChoice FailingAt(ScriptedChoice choice, uint64_t bytes) {
  // Ranks launch a choice at the same size at a time.
  auto launched_bytes = std::make_shared<std::atomic<uint64_t>>(0);
  choice.cost_ns = [launched_bytes, cost_ns = choice.cost_ns](uint64_t of_call) {
    *launched_bytes = of_call;
    return cost_ns(of_call);
  };
  choice.launch_fails = [launched_bytes, bytes] { return *launched_bytes == bytes; };
  return choice;
}

TEST(PrunedCellsTuneTest, ChoicesThatWereSlowRaceIfAllOthersFail) {
  NotedAttempts noted;
  Tune tune = TuneWith({Scripted("slow", 200'000), Scripted("slower", 300'000)});
  tune.known = &noted;
  tune.choices = [choices = tune.choices](int rank) {
    std::vector<ScriptedChoice> some_fail = choices(rank);
    for (size_t i = 0; i < 6; ++i) some_fail[i] = FailingAt(some_fail[i], 4096);
    return some_fail;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 4);
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/slow");
    ASSERT_THAT(view.cells, SizeIs(4));
    EXPECT_EQ(VerdictOf(view.cells[1], "usual").outcome, Outcome::kLaunchFailed);
    EXPECT_EQ(WhyNotRaced(view.cells[1], "slow"), "");
    EXPECT_TRUE(HasVerdictOf(view.cells[1], "slower"));
    EXPECT_EQ(WhyNotRaced(view.cells[3], "slow"),
              "not raced: 10.0 and 10.0 times the winner's time at 1024 and 16384 bytes");
  }
  EXPECT_THAT(noted.attempts.at(4096), Contains("scripted/slow"));
  EXPECT_THAT(noted.attempts.at(kLarge), Not(Contains("scripted/slow")));
}

// "wins" is the fastest at the sizes around 4096 and fails there. "crosses" is slow around it by
// the time of "wins" alone.
TEST(PrunedCellsTuneTest, AChoiceRacesIfTheOneThatWasFasterFails) {
  ScriptedChoice crosses = Scripted("crosses", 0);
  crosses.cost_ns = [](uint64_t bytes) { return bytes == 4096 ? 5'000 : 40'000; };
  Tune tune = TuneWith({FailingAt(Scripted("wins", 2'000), 4096), crosses});
  NotedAttempts noted;
  tune.known = &noted;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 4);
    EXPECT_EQ(WinnerAt(*view.outcome, 1024, 2), "scripted/wins");
    EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/crosses");
    ASSERT_THAT(view.cells, SizeIs(4));
    const CellResult& cell = view.cells[1];
    EXPECT_EQ(VerdictOf(cell, "wins").outcome, Outcome::kLaunchFailed);
    EXPECT_EQ(VerdictOf(cell, "crosses").outcome, Outcome::kTimed);
    EXPECT_EQ(WhyNotRaced(cell, "crosses"), "");
    EXPECT_TRUE(HasVerdictOf(cell, "usual"));
    EXPECT_THAT(WhyNotRaced(view.cells[3], "crosses"), HasSubstr("not raced"));
  }
  const std::vector<std::string>& attempts = noted.attempts.at(4096);
  EXPECT_EQ(std::count(attempts.begin(), attempts.end(), "scripted/wins"), 1);
}

// As before, but the checks of the second race take the rest of the budget.
TEST(PrunedCellsTuneTest, ASteadyCellStaysIfTheBudgetCutsTheRaceWithSlowChoices) {
  ScriptedChoice crosses = Scripted("crosses", 0);
  crosses.cost_ns = [](uint64_t bytes) { return bytes == 4096 ? 5'000 : 40'000; };
  Tune tune = TuneWith({FailingAt(Scripted("wins", 2'000), 4096), crosses});
  tune.settings.budget_ns = 20'000'000'000;
  std::atomic<bool> has_second_race{false};
  tune.on_step = [&](int, std::string_view step, int64_t) -> int64_t {
    const bool is_second_race = step.find("slow choices") != std::string_view::npos;
    has_second_race = has_second_race || is_second_race;
    const bool is_check = step.find(" check ") != std::string_view::npos;
    return is_second_race && is_check ? 20'000'000'000 : 0;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->measured_cells, 4);
    EXPECT_EQ(view.outcome->unsteady_cells, 0);
    ASSERT_THAT(view.cells, SizeIs(4));
    const CellResult& cell = view.cells[1];
    EXPECT_FALSE(cell.is_unsteady);
    EXPECT_GT(VerdictOf(cell, "a").samples_ns.size(), 1u);
    EXPECT_FALSE(HasVerdictOf(cell, "crosses"));
    EXPECT_THAT(WhyNotRaced(cell, "crosses"), HasSubstr("not raced"));
  }
  EXPECT_TRUE(has_second_race);
}

// Two sizes are known, with a winner that this tune cannot run any more: it is refused, or its plan
// fails on all ranks. "crosses" was slow by its time alone.
TEST(PrunedCellsTuneTest, AKnownWinnerThatDoesNotRunAnyMoreLeavesNoChoiceOut) {
  for (const bool is_refused : {true, false}) {
    SCOPED_TRACE(is_refused ? "refused" : "without a plan");
    MemoryOfCells memory;
    ScriptedChoice crosses = Scripted("crosses", 0);
    crosses.cost_ns = [](uint64_t bytes) { return bytes == 4096 ? 5'000 : 30'000; };
    Tune tune = TuneWith({Scripted("wins", 2'000), crosses, Scripted("slow", 200'000)});
    tune.known = &memory;
    tune.node_sizes = {{1024, 16384}};
    ASSERT_TRUE(RunTune(tune)[0].outcome.has_value());
    tune.node_sizes = {{1024, 4096, 16384}};
    tune.choices = [choices = tune.choices, is_refused](int rank) {
      std::vector<ScriptedChoice> without = choices(rank);
      ScriptedChoice& wins = without[6];
      if (is_refused) wins.refused = "it needs another network";
      wins.prepare_fails_on_rank = rank;
      return without;
    };
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->known_cells, 2);
      EXPECT_EQ(view.outcome->measured_cells, 1);
      ASSERT_THAT(view.cells, SizeIs(3));
      EXPECT_EQ(WinnerAt(*view.outcome, 4096, 2), "scripted/crosses");
      EXPECT_TRUE(HasVerdictOf(view.cells[1], "slow"));
    }
  }
}

TEST(PrunedCellsTuneTest, KnownCellsAreNeighbours) {
  MemoryOfCells memory;
  Tune tune = TuneWith({Scripted("slow", 200'000)});
  tune.known = &memory;
  tune.node_sizes = {{1024, 16384}};
  RunTune(tune);
  tune.node_sizes = {{1024, 2048, 16384}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->known_cells, 2);
    EXPECT_EQ(view.outcome->measured_cells, 1);
    EXPECT_FALSE(HasVerdictOf(view.cells[1], "slow"));
    EXPECT_THAT(WhyNotRaced(view.cells[1], "slow"), HasSubstr("at 1024 and 16384 bytes"));
  }
  // A size whose race it was not in is no neighbour of the next one, and its reason no refusal.
  tune.node_sizes = {{1024, 2048, 4096, 16384}};
  for (const RankView& view : RunTune(tune)) {
    EXPECT_EQ(view.outcome->known_cells, 3);
    EXPECT_THAT(WhyNotRaced(view.cells[2], "slow"), HasSubstr("at 1024 and 16384 bytes"));
  }
}

TEST(PrunedCellsTuneTest, ProgramsRaceAllOfTheirChoicesInAscendingOrder) {
  NotedAttempts noted;
  Tune tune = TuneWith({Scripted("slow", 200'000)});
  tune.known = &noted;
  tune.node_programs = {"%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n"};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    for (const CellResult& cell : view.cells) {
      EXPECT_TRUE(HasVerdictOf(cell, "slow"));
      EXPECT_EQ(WhyNotRaced(cell, "slow"), "");
    }
  }
  EXPECT_THAT(noted.sizes, ElementsAre(1024, 4096, 16384, kLarge));
}

// Each node has its first sizes before any node has the others, so that a budget that ends early
// leaves none of them out.
TEST(PrunedCellsTuneTest, ABudgetThatEndsEarlyHasMeasuredSizesOfEveryNode) {
  Tune tune = TuneWith({});
  tune.node_sizes = {{1024, 2048, 4096, 8192, 16384, 32768, kLarge},
                     {1024, 2048, 4096, 8192, 16384, 32768, kLarge}};
  int measured = 0;
  for (int64_t budget_ns = 20'000'000; budget_ns <= 1'280'000'000; budget_ns *= 2) {
    tune.settings.budget_ns = budget_ns;
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      const TuneOutcome& outcome = *view.outcome;
      EXPECT_EQ(outcome.measured_cells + outcome.skipped_cells, 14);
      if (outcome.measured_cells < 4) continue;
      ++measured;
      std::vector<uint64_t> sizes;
      for (const CellResult& cell : view.cells) sizes.push_back(cell.problem.bytes());
      EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 1024), 2) << outcome.measured_cells;
      EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 16384), 2) << outcome.measured_cells;
    }
  }
  EXPECT_GT(measured, 0);
}

}  // namespace
}  // namespace cotune
