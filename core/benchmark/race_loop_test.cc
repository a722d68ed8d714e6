#include "core/benchmark/race_loop.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/cell_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSampleNs = 100'000;

// Each choice as its calibration would leave it.
void SetRepetitions(PreparedCellOnRank& cell, int32_t repetitions, int64_t call_ns) {
  for (RacingChoice& choice : cell.choices) {
    choice.verdict.repetitions = repetitions;
    choice.call_ns = call_ns;
  }
}

TEST(RaceLoopTest, SamplesAreTimesOfOneCallAndSlowChoicesAreEliminated) {
  CellScript script;
  script.choices = {ChoiceOfCost("slow", 90'000), ChoiceOfCost("fast", 10'000)};
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 4, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    ASSERT_TRUE(loop.Run(cell.choices, RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly), 0)
                    .has_value());
    const Verdict& slow = cell.choices[0].verdict;
    const Verdict& fast = cell.choices[1].verdict;
    EXPECT_EQ(slow.outcome, Outcome::kOutpaced);
    EXPECT_EQ(slow.median_ns, 90'000);
    EXPECT_EQ(slow.samples_ns.size(), 2u) << "the first cut needs two";
    EXPECT_EQ(fast.outcome, Outcome::kTimed);
    EXPECT_THAT(fast.samples_ns, Each(10'000));
    EXPECT_EQ(fast.samples_ns.size(), 8u);
    EXPECT_EQ(fast.skews_ns.size(), 8u);
    EXPECT_EQ(fast.interval_high_ns, 10'000);
    EXPECT_EQ(window.mode(), StartMode::kBarrier);
  });
}

// Thirteen choices, three of which are close: two calls of a short sample, and ten of a long one.
CellScript ManyChoices() {
  CellScript script;
  script.settings.sample_ns = kSampleNs;
  for (int64_t i = 0; i < 13; ++i) {
    const int64_t cost_ns = i < 3 ? 10'000 + i * 100 : 20'000 + i * 500;
    script.choices.push_back(ChoiceOfCost("way" + std::to_string(i), cost_ns));
  }
  script.choices[12].is_default = true;
  return script;
}

TEST(RaceLoopTest, ShortSamplesQualifyManyChoicesForLongOnes) {
  RunOnPreparedRanks(ManyChoices(), [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly);
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    for (size_t i = 0; i < cell.choices.size(); ++i) {
      const Verdict& verdict = cell.choices[i].verdict;
      SCOPED_TRACE(verdict.id.text());
      const bool is_long = i < 3 || i == 12;
      EXPECT_EQ(verdict.repetitions, i == 12 ? 4 : is_long ? 9 + (i == 0 ? 1 : 0) : 2);
      EXPECT_EQ(verdict.samples_ns.size(), is_long ? 8u : 2u);
      EXPECT_EQ(verdict.skews_ns.size(), verdict.samples_ns.size());
      const int64_t cost_ns =
          i < 3 ? 10'000 + static_cast<int64_t>(i) * 100 : 20'000 + static_cast<int64_t>(i) * 500;
      EXPECT_THAT(verdict.samples_ns, Each(cost_ns));
    }
    EXPECT_EQ(cell.choices[0].verdict.outcome, Outcome::kTimed);
    EXPECT_EQ(cell.choices[12].verdict.outcome, Outcome::kOutpaced) << "the default, by long ones";
  });
}

TEST(RaceLoopTest, TheFirstOfTwoHeatsHasShortSamplesAlone) {
  RunOnPreparedRanks(ManyChoices(), [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kFirstOfTwo);
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    for (size_t i = 0; i < cell.choices.size(); ++i) {
      const Verdict& verdict = cell.choices[i].verdict;
      SCOPED_TRACE(verdict.id.text());
      const bool races_again = i < 3 || i == 12;
      EXPECT_EQ(verdict.repetitions, 2);
      EXPECT_EQ(verdict.samples_ns.size(), races_again ? 5u : 2u);
      EXPECT_EQ(verdict.outcome, races_again ? Outcome::kTimed : Outcome::kOutpaced);
    }
    EXPECT_TRUE(loop.has_short_samples());
    EXPECT_FALSE(loop.is_cut_short());
  });
}

// Races ManyChoices by the rules of the heat, and checks what rank 0 finds.
void RaceMany(Heat heat, int64_t budget_ns, int64_t total_budget_ns,
              const std::function<void(const RaceLoop&, const std::vector<RacingChoice>&)>& check) {
  RunOnPreparedRanks(ManyChoices(), [&](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), heat);
    ASSERT_TRUE(loop.Run(cell.choices, rules, budget_ns, total_budget_ns).has_value());
    if (cell.parts.exchange.rank() == 0) check(loop, cell.choices);
  });
}

TEST(RaceLoopTest, ASpentBudgetOfTheCellEndsNoRaceWithShortSamples) {
  RaceMany(Heat::kOnly, 1, 0, [](const RaceLoop& loop, const std::vector<RacingChoice>& choices) {
    EXPECT_FALSE(loop.is_cut_short());
    EXPECT_FALSE(loop.has_short_samples());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(choices[i].verdict.repetitions, 9) << i;
      EXPECT_EQ(choices[i].verdict.samples_ns.size(), 8u) << i;
    }
  });
}

// The budget ends the race after each of its rounds in turn, also directly before and after the
// short samples are discarded. A step takes a millisecond, and a round 5 to 14 of them.
TEST(RaceLoopTest, WheneverTheBudgetEndsTheRaceChoicesHaveTimes) {
  bool has_been_short = false;
  bool has_been_long = false;
  bool has_ended = false;
  for (int64_t budget_ns = 1'000'000; !has_ended; budget_ns += 4'000'000) {
    ASSERT_LT(budget_ns, 1'000'000'000);
    SCOPED_TRACE(budget_ns);
    RaceMany(
        Heat::kOnly, 0, budget_ns,
        [&](const RaceLoop& loop, const std::vector<RacingChoice>& choices) {
          for (const size_t i : {0, 1, 2, 12}) {
            EXPECT_GT(choices[i].verdict.median_ns, 0) << i;
            EXPECT_EQ(choices[i].verdict.skews_ns.size(), choices[i].verdict.samples_ns.size());
          }
          const bool is_short = choices[0].verdict.repetitions == 2;
          EXPECT_EQ(loop.has_short_samples(), is_short);
          EXPECT_EQ(loop.is_cut_short(), is_short || choices[0].verdict.samples_ns.size() < 8u);
          has_been_short = has_been_short || is_short;
          has_been_long = has_been_long || (!is_short && loop.is_cut_short());
          has_ended = !loop.is_cut_short();
        });
  }
  EXPECT_TRUE(has_been_short);
  EXPECT_TRUE(has_been_long);
}

// A call of a whole sample: a short sample has one call after an untimed one, a full one two.
TEST(RaceLoopTest, SamplesOfLongCallsAreNotShort) {
  CellScript script = ManyChoices();
  for (ScriptedChoice& choice : script.choices) choice = ChoiceOfCost(choice.name, 100'000);
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 2, 100'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kFirstOfTwo);
    ASSERT_TRUE(rules.only_qualifies);
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    EXPECT_TRUE(loop.has_short_samples()) << "five rounds decide nothing";
    EXPECT_EQ(cell.choices[0].verdict.repetitions, 1);
    EXPECT_TRUE(cell.choices[0].adds_untimed_call);
  });
}

TEST(RaceLoopTest, FewChoicesOrFewRoundsHaveLongSamplesAlone) {
  for (const bool has_few_rounds : {false, true}) {
    CellScript script = ManyChoices();
    if (has_few_rounds) script.settings.collective_benchmark_nruns = 23;
    if (!has_few_rounds) script.choices.erase(script.choices.begin() + 11);
    RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
      const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kFirstOfTwo);
      EXPECT_EQ(rules.qualifying_rounds, 0);
      EXPECT_FALSE(rules.only_qualifies);
    });
  }
}

// Three choices whose calls take so long, in samples of so many calls.
struct ThreeChoices {
  StartMode start_mode = StartMode::kWindow;
  int64_t call_ns = 0;
  int32_t repetitions = 1;
  bool adds_untimed_call = false;
};

// Races them for eight rounds and returns the steps of a round.
int64_t StepsOfARound(const ThreeChoices& three) {
  constexpr int32_t kRounds = 8;
  constexpr int64_t kStepNs = 1'000'000;
  CellScript script;
  script.start_mode = three.start_mode;
  for (const char* name : {"a", "b", "c"}) {
    script.choices.push_back(ChoiceOfCost(name, three.call_ns));
  }
  int64_t steps = 0;
  RunOnPreparedRanks(script, [&](PreparedCellOnRank& cell) {
    SetRepetitions(cell, three.repetitions, three.call_ns);
    for (RacingChoice& choice : cell.choices) choice.adds_untimed_call = three.adds_untimed_call;
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const int64_t before_ns = cell.steps.elapsed_ns();
    const RaceRules rules{.max_rounds = kRounds, .cuts = {}, .limits = {}};
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    for (const RacingChoice& choice : cell.choices) {
      EXPECT_THAT(choice.verdict.samples_ns, Each(three.call_ns));
      EXPECT_EQ(choice.verdict.samples_ns.size(), 8u);
    }
    const int64_t elapsed_ns = cell.steps.elapsed_ns() - before_ns;
    EXPECT_EQ(elapsed_ns % (kRounds * kStepNs), 0);
    if (cell.parts.exchange.rank() == 0) steps = elapsed_ns / (kRounds * kStepNs);
  });
  return steps;
}

// The samples of a round follow each other without a step between them, up to 2 ms of them. A round
// has a step before each batch and one at its end.
TEST(RaceLoopTest, LongSamplesShareFewReleases) {
  EXPECT_EQ(StepsOfARound({.call_ns = 900'000}), 3) << "two samples, and one";
  EXPECT_EQ(StepsOfARound({.call_ns = 600'000}), 2) << "three samples";
}

// The call before a sample that is not timed takes its share of the 2 ms.
TEST(RaceLoopTest, BatchesHaveRoomForCallsThatAreNotTimed) {
  EXPECT_EQ(StepsOfARound({.call_ns = 600'000, .adds_untimed_call = true}), 3);
  EXPECT_EQ(StepsOfARound({.call_ns = 300'000, .repetitions = 2}), 3)
      << "a sample of several calls has one, too";
  EXPECT_EQ(StepsOfARound({.call_ns = 300'000, .adds_untimed_call = true}), 2);
}

TEST(RaceLoopTest, FullSamplesWithoutACommonStartHaveAReleaseEach) {
  EXPECT_EQ(StepsOfARound({.start_mode = StartMode::kBarrier, .call_ns = 10'000, .repetitions = 4}),
            4);
}

// A choice after the one that failed was not run on the rank of the failure; it is measured again.
TEST(RaceLoopTest, OnlyTheChoiceThatFailsFirstIsRemoved) {
  CellScript script;
  script.start_mode = StartMode::kWindow;
  script.world_size = 3;
  script.choices = {ChoiceOfCost("before", 10'000), ChoiceOfCost("failing", 10'000),
                    ChoiceOfCost("after", 10'000)};
  const auto launches = std::make_shared<std::atomic<int>>(0);
  script.choices[1].launch_fails = [launches] { return ++*launches > 6; };
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules{.max_rounds = 8, .cuts = {}, .limits = {}};
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    EXPECT_TRUE(cell.choices[1].has_failed);
    EXPECT_EQ(cell.choices[1].verdict.outcome, Outcome::kLaunchFailed);
    for (const size_t i : {0, 2}) {
      EXPECT_FALSE(cell.choices[i].has_failed) << i;
      EXPECT_EQ(cell.choices[i].verdict.samples_ns.size(), 8u) << i;
    }
    EXPECT_EQ(cell.backend.groups_created, 2);
  });
}

TEST(RaceLoopTest, TheSamplesOfTheCalibrationAreTheFirstRoundOfShortOnes) {
  RunOnPreparedRanks(ManyChoices(), [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    for (RacingChoice& choice : cell.choices) {
      choice.warm_ns = 77'000;
      choice.warm_skew_ns = 7;
    }
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kFirstOfTwo);
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    EXPECT_EQ(cell.choices[0].verdict.samples_ns.front(), 77'000);
    EXPECT_EQ(cell.choices[0].verdict.skews_ns.front(), 7);
    EXPECT_EQ(cell.choices[0].verdict.samples_ns.size(), 5u);
  });
}

TEST(RaceLoopTest, AChoiceWithoutACalibrationBeginsWithTheNextRound) {
  RunOnPreparedRanks(ManyChoices(), [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    for (RacingChoice& choice : cell.choices) choice.warm_ns = 11'000;
    cell.choices[1].warm_ns = 0;
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    const RaceRules rules = RulesOfRace(cell.parts, cell.choices.size(), Heat::kFirstOfTwo);
    ASSERT_TRUE(loop.Run(cell.choices, rules, 0).has_value());
    EXPECT_THAT(cell.choices[0].verdict.samples_ns,
                ElementsAre(11'000, 10'000, 10'000, 10'000, 10'000));
    EXPECT_EQ(cell.choices[0].verdict.skews_ns.size(), 5u);
    EXPECT_THAT(cell.choices[1].verdict.samples_ns, ElementsAre(10'100, 10'100, 10'100, 10'100));
    EXPECT_EQ(cell.choices[1].verdict.skews_ns.size(), 4u);
  });
}

TEST(RaceLoopTest, AChoiceThatFailsInTheRaceIsRemovedOnAllAndTheOthersGoOn) {
  CellScript script;
  script.world_size = 3;
  script.choices = {ChoiceOfCost("failing", 1'000), ChoiceOfCost("right", 10'000)};
  script.choices[0].launch_fails_on_rank = 2;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 10, 10'000);
    const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    ASSERT_TRUE(loop.Run(cell.choices, RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly), 0)
                    .has_value());
    EXPECT_TRUE(cell.choices[0].has_failed);
    EXPECT_EQ(cell.choices[0].verdict.outcome, Outcome::kLaunchFailed);
    EXPECT_THAT(cell.choices[0].verdict.reason, HasSubstr("rank 2: scripted launch failure"));
    EXPECT_EQ(cell.choices[0].verdict.median_ns, 0);
    EXPECT_EQ(cell.choices[1].verdict.samples_ns.size(), 8u);
    EXPECT_EQ(cell.backend.groups_created, 2);
  });
}

// Short calls are late by a larger share of their time: without their samples the slow choice would
// be the only one with a time.
TEST(RaceLoopTest, ASampleThatARankStartedLateIsTakenAgain) {
  for (const int64_t late_samples : {1, 7, 1000}) {
    SCOPED_TRACE(late_samples);
    CellScript script;
    script.start_mode = StartMode::kWindow;
    script.settings.collective_benchmark_nruns = 8;
    script.choices = {ChoiceOfCost("usual", 10'000'000), ChoiceOfCost("short", 1'000)};
    script.choices[1].late_rank = 1;
    script.choices[1].late_samples = late_samples;
    script.choices[1].late_by_ns = 100'000;
    RunOnPreparedRanks(script, [&](PreparedCellOnRank& cell) {
      SetRepetitions(cell, 1, 10'000);
      const SampleRepetitions repetitions(1'000, 1, MemoryKind::kHost);
      StartWindow window(cell.parts.start_mode);
      RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
      ASSERT_TRUE(
          loop.Run(cell.choices, RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly), 0)
              .has_value());
      const Verdict& quick = cell.choices[1].verdict;
      EXPECT_EQ(quick.samples_ns.size(), 8u);
      EXPECT_EQ(quick.skews_ns.size(), 8u);
      EXPECT_THAT(quick.samples_ns, Each(1'000)) << "those that count began together";
      EXPECT_EQ(quick.outcome, Outcome::kTimed);
      EXPECT_EQ(cell.choices[0].verdict.outcome, Outcome::kOutpaced);
      const bool gives_up = late_samples > 8;
      EXPECT_EQ(window.invalid_samples(), gives_up ? 8 : late_samples);
      EXPECT_EQ(window.mode(), gives_up ? StartMode::kBarrier : StartMode::kWindow);
    });
  }
}

TEST(RaceLoopTest, AChoiceThatFailsBehindALateSampleIsRemovedOnAll) {
  CellScript script;
  script.start_mode = StartMode::kWindow;
  script.choices = {ChoiceOfCost("late", 1'000), ChoiceOfCost("failing", 1'000),
                    ChoiceOfCost("right", 10'000)};
  script.choices[0].late_rank = 0;
  script.choices[0].late_samples = 2;
  script.choices[0].late_by_ns = 100'000;
  script.choices[1].launch_fails_on_rank = 1;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    SetRepetitions(cell, 1, 10'000);
    const SampleRepetitions repetitions(1'000, 1, MemoryKind::kHost);
    StartWindow window(cell.parts.start_mode);
    RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
    ASSERT_TRUE(loop.Run(cell.choices, RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly), 0)
                    .has_value());
    EXPECT_EQ(cell.choices[0].verdict.samples_ns.size(), 8u);
    EXPECT_TRUE(cell.choices[1].has_failed);
    EXPECT_EQ(cell.choices[2].verdict.samples_ns.size(), 2u) << "the first cut needs two";
  });
}

TEST(RaceLoopTest, ASpentBudgetEndsTheRaceOnceEveryChoiceHasEnoughSamplesAndTheWholeBudgetAtOnce) {
  CellScript script;
  script.choices = {ChoiceOfCost("noisy", 10'000), ChoiceOfCost("noisier", 9'500)};
  script.choices[0].noise_ns = 1'000;  // medians differ, intervals overlap
  script.choices[1].noise_ns = 1'800;
  const auto rounds_with = [&](int64_t budget_ns, int64_t total_budget_ns = 0) {
    size_t rounds = 0;
    RunOnPreparedRanks(script, [&](PreparedCellOnRank& cell) {
      SetRepetitions(cell, 10, 10'000);
      const SampleRepetitions repetitions(kSampleNs, 1, MemoryKind::kHost);
      StartWindow window(cell.parts.start_mode);
      RaceLoop loop(cell.parts, cell.steps, cell.runs, cell.removal, repetitions, window);
      ASSERT_TRUE(loop.Run(cell.choices, RulesOfRace(cell.parts, cell.choices.size(), Heat::kOnly),
                           budget_ns, total_budget_ns)
                      .has_value());
      EXPECT_EQ(loop.is_cut_short(), total_budget_ns == 1);
      if (cell.parts.exchange.rank() == 0) rounds = cell.choices[0].verdict.samples_ns.size();
    });
    return rounds;
  };
  EXPECT_GT(rounds_with(0), 8u);
  EXPECT_EQ(rounds_with(1), 8u) << "a cell that is begun is measured well enough";
  EXPECT_EQ(rounds_with(1, 1'000'000'000'000), 8u);
  EXPECT_EQ(rounds_with(1, 1), 1u) << "nothing is left for any cell";
}

}  // namespace
}  // namespace cotune
