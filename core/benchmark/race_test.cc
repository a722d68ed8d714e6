#include "core/benchmark/race.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "gtest/gtest.h"

namespace cotune {
namespace {

using TimeOf = std::function<int64_t(size_t choice, int32_t round)>;

// Runs a race to its end; returns how many samples it took.
int64_t RunToEnd(Race& race, const TimeOf& time_of) {
  int64_t samples = 0;
  for (auto order = race.NextRound(); !order.empty(); order = race.NextRound()) {
    std::vector<int64_t> times_ns;
    for (size_t choice : order) times_ns.push_back(time_of(choice, race.rounds()));
    samples += static_cast<int64_t>(order.size());
    race.AddRound(times_ns);
  }
  return samples;
}

TEST(RaceTest, SlowChoicesAreDroppedEarlyAndTheLeaderIsMeasuredEnough) {
  Race race(4, SIZE_MAX, RaceRules{});
  const int64_t base_ns[] = {100'000, 1'000'000, 140'000, 104'000};
  RunToEnd(race, [&](size_t choice, int32_t round) { return base_ns[choice] + round * 10; });
  EXPECT_EQ(race.samples_ns(1).size(), 2u);  // over 3 x
  EXPECT_EQ(race.samples_ns(2).size(), 5u);  // over 1.25 x
  EXPECT_TRUE(race.is_eliminated(1));
  EXPECT_TRUE(race.is_eliminated(2));
  EXPECT_EQ(race.samples_ns(0).size(), 8u);
  EXPECT_FALSE(race.is_eliminated(0));
}

TEST(RaceTest, CutsAreThoseOfTheRules) {
  Race race(5, 0, RaceRules{.cuts = {{2, 1.5}, {3, 1.25}, {4, 1.1}}});
  const int64_t base_ns[] = {300'000, 100'000, 152'000, 127'000, 112'000};
  RunToEnd(race, [&](size_t choice, int32_t) { return base_ns[choice]; });
  EXPECT_EQ(race.samples_ns(0).size(), 8u);  // the default
  EXPECT_EQ(race.samples_ns(2).size(), 2u);
  EXPECT_EQ(race.samples_ns(3).size(), 3u);
  EXPECT_EQ(race.samples_ns(4).size(), 4u);
  EXPECT_EQ(race.samples_ns(1).size(), 8u);
  // A spike in one of its two: nobody is dropped for it, whether the other had one or not.
  for (const bool both : {false, true}) {
    Race spiky(2, SIZE_MAX, RaceRules{.cuts = {{2, 1.5}}});
    RunToEnd(spiky, [&](size_t choice, int32_t round) -> int64_t {
      const bool is_spike = choice == 0 ? round == 0 : both && round == 1;
      return is_spike ? 900'000 : 100'000;
    });
    EXPECT_FALSE(spiky.is_eliminated(0) || spiky.is_eliminated(1)) << both;
  }
}

TEST(RaceTest, NobodyIsDroppedForTheTimesOfOneThatFailedInTheRound) {
  Race race(3, SIZE_MAX, RaceRules{.cuts = {{2, 1.25}}});
  race.AddRound({100'000, 150'000, 400'000});
  const std::vector<size_t> order = race.NextRound();
  ASSERT_EQ(order, (std::vector<size_t>{1, 2, 0}));
  race.Disqualify(0);
  race.AddRound(order, {150'000, 400'000, 0});
  EXPECT_FALSE(race.is_eliminated(1));
  EXPECT_TRUE(race.is_eliminated(2)) << "that is behind the one that is left";
}

TEST(RaceTest, OneSpikeDoesNotDropTheBest) {
  Race race(2, SIZE_MAX, RaceRules{});
  RunToEnd(race, [](size_t choice, int32_t round) -> int64_t {
    if (choice == 0) return round == 0 ? 9'000'000 : 100'000;
    return 150'000;
  });
  EXPECT_FALSE(race.is_eliminated(0));
  EXPECT_TRUE(race.is_eliminated(1));
}

TEST(RaceTest, TheDefaultRacesUntilItsIntervalIsOutsideOfTheNoise) {
  Race slow(2, 0, RaceRules{});
  RunToEnd(slow, [](size_t choice, int32_t round) {
    return (choice == 0 ? 5'000'000 : 100'000) + round;
  });
  EXPECT_EQ(slow.samples_ns(0).size(), 8u);
  Race close(2, 0, RaceRules{.min_rounds = 8, .max_rounds = 20});
  RunToEnd(close, [](size_t choice, int32_t round) {
    return (choice == 0 ? 101'000 : 100'000) + (round % 2) * 5'000;
  });
  EXPECT_FALSE(close.is_eliminated(0));
}

// The first three rounds do not count for both, and a later sample of the leader is an outlier: the
// default is still there, so that more rounds decide.
TEST(RaceTest, TheDefaultIsNotDroppedBeforeBothHaveEnoughSamples) {
  Race race(2, 0, RaceRules{});
  RunToEnd(race, [](size_t choice, int32_t round) -> int64_t {
    if (round < 3) return 0;
    if (choice == 0) return 27'000 + round * 10;
    return round == 9 ? 81'000 : 19'000 + round * 10;
  });
  EXPECT_TRUE(race.is_eliminated(0));
  EXPECT_GE(race.samples_ns(0).size(), 8u);
  EXPECT_GT(race.samples_ns(1).size(), 8u);
  const auto of = [&](size_t choice) { return MedianWithInterval(race.samples_ns(choice)); };
  EXPECT_LT(of(1).high_ns, of(0).low_ns);
}

// The machine speeds up and slows down by half from round to round, alike for all.
TEST(RaceTest, RoundsAreComparedPairByPair) {
  const auto speed = [](int32_t round) { return 100 + (round * 37) % 50; };
  Race apart(3, 0, RaceRules{});
  RunToEnd(apart, [&](size_t choice, int32_t round) -> int64_t {
    return (choice == 1 ? 1000 : 1040) * speed(round);
  });
  EXPECT_TRUE(apart.is_eliminated(0));
  EXPECT_TRUE(apart.is_eliminated(2));
  EXPECT_EQ(apart.samples_ns(0).size(), 8u);
  // A default inside the noise keeps its place, however sure that is.
  Race close(2, 0, RaceRules{.min_rounds = 8, .max_rounds = 30});
  RunToEnd(close, [&](size_t choice, int32_t round) -> int64_t {
    return (choice == 1 ? 1000 : 1015) * speed(round);
  });
  EXPECT_FALSE(close.is_eliminated(0));
  // Pairs that say nothing (each is faster in every other round) eliminate no choice.
  Race equal(2, SIZE_MAX, RaceRules{.min_rounds = 8, .max_rounds = 30});
  RunToEnd(equal, [&](size_t choice, int32_t round) -> int64_t {
    return (static_cast<int32_t>(choice) == round % 2 ? 1000 : 1100) * speed(round);
  });
  EXPECT_FALSE(equal.is_eliminated(0) || equal.is_eliminated(1));
}

TEST(RaceTest, OneSampleThatCountsIsTooFewToBeDroppedForInAnyRound) {
  Race race(2, SIZE_MAX, RaceRules{});
  // Choice 1 has its first sample in the sixth round, a spike, and is the faster one after it.
  RunToEnd(race, [](size_t choice, int32_t round) -> int64_t {
    if (choice == 0) return 100'000;
    return round < 5 ? 0 : round == 5 ? 9'000'000 : 80'000;
  });
  EXPECT_FALSE(race.is_eliminated(1));
  EXPECT_TRUE(race.is_eliminated(0));
}

TEST(RaceTest, WhatIsForgottenDoesNotCount) {
  Race race(2, SIZE_MAX, RaceRules{});
  for (int round = 0; round < 3; ++round) {
    race.ClearSamples(1);
    std::vector<int64_t> times_ns;
    for (const size_t choice : race.NextRound())
      times_ns.push_back(choice == 0 ? 100'000 : 900'000);
    race.AddRound(times_ns);
  }
  EXPECT_FALSE(race.is_eliminated(1)) << "never two samples";
  EXPECT_EQ(race.samples_ns(1).size(), 1u);
  race.ClearSamples(1);
  RunToEnd(race, [](size_t choice, int32_t) { return choice == 0 ? 100'000 : 80'000; });
  EXPECT_EQ(race.samples_ns(1), std::vector<int64_t>(8, 80'000));
  EXPECT_TRUE(race.is_eliminated(0));
}

// Twenty choices within the noise of each other, in rounds whose order the noise decides. Two are
// not limited.
TEST(RaceTest, FewOfManyFormsThatTieRaceOn) {
  std::mt19937_64 random(11);
  const auto noisy = [&](size_t choice, int32_t) {
    return 100'000 + static_cast<int64_t>(choice) * 100 + static_cast<int64_t>(random() % 20'000);
  };
  Race race(20, 19, RaceRules{.cuts = {}, .limits = {{1, 12}, {2, 6}, {4, 3}}});
  for (size_t i = 0; i < 18; ++i) race.SetChangesForm(i);
  RunToEnd(race, noisy);
  const auto with_samples = [&](size_t count) {
    size_t choices = 0;
    for (size_t i = 0; i < 20; ++i) choices += race.samples_ns(i).size() >= count ? 1 : 0;
    return choices;
  };
  EXPECT_EQ(with_samples(8), 20u) << "each has enough samples for an interval";
  EXPECT_LE(with_samples(9), 14u) << "two are beside the 12";
  EXPECT_LE(with_samples(17), 8u);
  EXPECT_LE(with_samples(33), 5u);
  EXPECT_GE(with_samples(33), 3u) << "noise of 20 % leaves the race undecided so far";
  Race unlimited(20, 19, RaceRules{.cuts = {}, .limits = {{1, 12}, {2, 6}, {4, 3}}});
  RunToEnd(unlimited, noisy);
  size_t samples = 0;
  for (size_t i = 0; i < 20; ++i) samples += unlimited.samples_ns(i).size();
  EXPECT_GT(samples, 600u);
}

// The fastest choice began late in all rounds so far.
TEST(RaceTest, AChoiceWithoutEnoughSamplesIsNotBeyondTheLimit) {
  Race race(4, SIZE_MAX, RaceRules{.cuts = {}, .limits = {{1, 2}}});
  for (size_t i = 0; i < 4; ++i) race.SetChangesForm(i);
  RunToEnd(race, [](size_t choice, int32_t round) -> int64_t {
    if (choice == 3) return round < 12 ? 0 : 50'000;
    return 100'000 + (round % 2) * 10'000 + static_cast<int64_t>(choice) * 10;
  });
  EXPECT_EQ(race.samples_ns(2).size(), 8u) << "beyond the two";
  EXPECT_EQ(race.samples_ns(3).size(), 8u);
  EXPECT_FALSE(race.is_eliminated(3));
}

// The fastest choice by long samples is another one than by short ones.
TEST(RaceTest, SamplesOfQualifyingAreDiscardedAndDoNotEliminateTheDefault) {
  Race race(6, 0, RaceRules{.qualifying_rounds = 8});
  const int64_t base_ns[] = {150'000, 100'000, 101'000, 104'000, 112'000, 400'000};
  for (int round = 0; round < 8; ++round) {
    EXPECT_TRUE(race.is_qualifying());
    EXPECT_FALSE(race.HasQualified()) << round;
    std::vector<int64_t> times_ns;
    for (const size_t choice : race.NextRound()) {
      times_ns.push_back(base_ns[choice] + (round % 4) * 3'000);
    }
    race.AddRound(times_ns);
  }
  EXPECT_TRUE(race.HasQualified());
  EXPECT_EQ(race.samples_ns(5).size(), 2u) << "over 3 x";
  EXPECT_EQ(race.samples_ns(4).size(), 8u);
  EXPECT_TRUE(race.is_eliminated(5));
  EXPECT_TRUE(race.is_eliminated(4)) << "surely by more than 5 %";
  EXPECT_TRUE(race.is_racing(0)) << "the default needs samples that decide";
  EXPECT_TRUE(race.is_racing(2));
  EXPECT_FALSE(race.is_over()) << "eight rounds of short samples decide nothing";
  race.EndQualifying(true);
  EXPECT_FALSE(race.is_qualifying());
  EXPECT_EQ(race.counted_rounds(), 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(race.samples_ns(i).empty()) << i;
  RunToEnd(race, [&](size_t choice, int32_t) { return choice == 2 ? 90'000 : 110'000; });
  EXPECT_EQ(race.samples_ns(2), std::vector<int64_t>(8, 90'000));
  EXPECT_TRUE(race.is_eliminated(0));
  EXPECT_TRUE(race.is_eliminated(1));
}

// The limit is one form. A second one is within 5 % of it, a third one is not.
TEST(RaceTest, ALimitKeepsAFormThatShortSamplesDoNotTellFromTheLeader) {
  for (const int32_t qualifying_rounds : {0, 8}) {
    SCOPED_TRACE(qualifying_rounds);
    Race race(3, SIZE_MAX,
              RaceRules{.cuts = {}, .limits = {{0.5, 1}}, .qualifying_rounds = qualifying_rounds});
    for (size_t i = 0; i < 3; ++i) race.SetChangesForm(i);
    const int64_t times_ns[] = {104'900, 100'000, 105'100};
    for (int round = 0; round < 4; ++round) {
      std::vector<int64_t> of_round_ns;
      for (const size_t choice : race.NextRound()) of_round_ns.push_back(times_ns[choice]);
      ASSERT_EQ(of_round_ns.size(), 3u);
      race.AddRound(of_round_ns);
    }
    EXPECT_EQ(race.is_racing(0), qualifying_rounds > 0) << "4.9 % slower";
    EXPECT_TRUE(race.is_racing(1));
    EXPECT_TRUE(race.is_eliminated(2)) << "5.1 % slower";
  }
}

// Choices 0 to 3 are of the unchanged form, and the default is the slowest of all.
TEST(RaceTest, LimitsOfAllFormsSpareTheDefaultAndTheFastestUnchangedChoice) {
  for (const bool limits_all_forms : {false, true}) {
    SCOPED_TRACE(limits_all_forms);
    Race race(8, 0,
              RaceRules{.cuts = {}, .limits = {{0.375, 2}}, .limits_all_forms = limits_all_forms});
    for (size_t i = 4; i < 8; ++i) race.SetChangesForm(i);
    const int64_t times_ns[] = {109'000, 108'000, 107'000, 106'000,
                                104'000, 103'000, 102'000, 101'000};
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> of_round_ns;
      for (const size_t choice : race.NextRound()) of_round_ns.push_back(times_ns[choice]);
      ASSERT_EQ(of_round_ns.size(), 8u);
      race.AddRound(of_round_ns);
    }
    EXPECT_TRUE(race.is_racing(0)) << "the default";
    EXPECT_EQ(race.is_racing(1), !limits_all_forms);
    EXPECT_EQ(race.is_racing(2), !limits_all_forms);
    EXPECT_TRUE(race.is_racing(3)) << "the others have to beat it";
    EXPECT_TRUE(race.is_eliminated(4));
    EXPECT_TRUE(race.is_eliminated(5));
    EXPECT_TRUE(race.is_racing(6));
    EXPECT_TRUE(race.is_racing(7));
  }
}

// Choice 3 has the best sample and the worst median; no sample of choice 4 counted.
TEST(RaceTest, TheBestSamplesDecideWhoQualifies) {
  Race race(6, 5, RaceRules{.cuts = {}, .limits = {}, .qualifying_rounds = 3, .qualified_max = 2});
  const std::vector<std::vector<int64_t>> rounds_ns = {
      {100, 101, 102, 150, 0, 140}, {100, 101, 102, 150, 0, 140}, {100, 101, 102, 99, 0, 140}};
  for (const std::vector<int64_t>& round_ns : rounds_ns) {
    std::vector<int64_t> times_ns;
    for (const size_t choice : race.NextRound()) times_ns.push_back(round_ns[choice] * 1000);
    ASSERT_EQ(times_ns.size(), 6u);
    race.AddRound(times_ns);
  }
  ASSERT_TRUE(race.HasQualified());
  race.EliminateUnqualified();
  EXPECT_TRUE(race.is_racing(0));
  EXPECT_TRUE(race.is_eliminated(1));
  EXPECT_TRUE(race.is_eliminated(2));
  EXPECT_TRUE(race.is_racing(3));
  EXPECT_TRUE(race.is_racing(4)) << "nothing is known about it";
  EXPECT_TRUE(race.is_racing(5)) << "the default";
}

// The calls of a sample are so long that a short one has as many.
TEST(RaceTest, SamplesThatAreAsLongCount) {
  Race race(4, SIZE_MAX, RaceRules{.cuts = {}, .qualifying_rounds = 8});
  for (int round = 0; round < 8; ++round) race.AddRound(std::vector<int64_t>(4, 1'000'000));
  race.EndQualifying(false);
  EXPECT_EQ(race.samples_ns(0).size(), 8u);
  EXPECT_EQ(race.counted_rounds(), 8);
  EXPECT_TRUE(race.is_over()) << "all tie";
}

TEST(RaceTest, FewChoicesNeedNoMoreShortSamplesUnlessAnotherRaceFollows) {
  for (const bool only_qualifies : {false, true}) {
    Race race(5, SIZE_MAX, RaceRules{.qualifying_rounds = 8, .only_qualifies = only_qualifies});
    for (int round = 0; round < 2; ++round) {
      EXPECT_FALSE(race.HasQualified());
      std::vector<int64_t> times_ns;
      for (const size_t choice : race.NextRound()) times_ns.push_back(choice < 3 ? 1'000 : 9'000);
      race.AddRound(times_ns);
    }
    EXPECT_EQ(race.NextRound().size(), 3u);
    EXPECT_EQ(race.HasQualified(), !only_qualifies);
  }
}

// After discarding, the cuts count rounds anew: one round of two samples is no fifth round.
TEST(RaceTest, CutsBeginAnewWithTheSamplesThatCount) {
  Race race(2, SIZE_MAX, RaceRules{.qualifying_rounds = 8});
  for (int round = 0; round < 8; ++round) race.AddRound(std::vector<int64_t>(2, 100'000));
  race.EndQualifying(true);
  for (int round = 0; round < 4; ++round) {
    std::vector<int64_t> times_ns;
    for (const size_t choice : race.NextRound()) times_ns.push_back(choice == 0 ? 1'000 : 1'300);
    race.AddRound(times_ns);
    EXPECT_FALSE(race.is_eliminated(1)) << round;
  }
}

TEST(RaceTest, AChoiceThatCanHardlyBeFasterIsEliminatedButNotTheDefault) {
  const auto time_of = [](size_t choice, int32_t round) -> int64_t {
    // Each by each of the leader: 0.995 to 1.06.
    const int64_t spread = (round * 7) % 14 * 500;
    return choice == 1 ? 100'000 : 99'500 + spread;
  };
  Race race(3, 0, RaceRules{.max_rounds = 16, .indifference = {{1, 1}}});
  RunToEnd(race, time_of);
  EXPECT_TRUE(race.is_eliminated(2));
  EXPECT_FALSE(race.is_eliminated(0)) << "the default";
  Race strict(3, 0, RaceRules{.max_rounds = 16});
  RunToEnd(strict, time_of);
  EXPECT_FALSE(strict.is_eliminated(2));
}

// Choice 1 takes 0.98 of the leader's time in a third of the rounds, and 1.06 in the others.
TEST(RaceTest, IndifferenceGrowsWithTheRounds) {
  const auto time_of = [](size_t choice, int32_t round) {
    const int64_t leader_ns = 97'000 + round % 5 * 1'500;
    return choice == 0 ? leader_ns : leader_ns * (round % 3 == 0 ? 98 : 106) / 100;
  };
  Race race(2, SIZE_MAX, RaceRules{.max_rounds = 40, .indifference = {{1, 1}, {2, 4}}});
  while (!race.is_over() && !race.is_eliminated(1)) {
    std::vector<int64_t> times_ns;
    for (const size_t i : race.NextRound()) times_ns.push_back(time_of(i, race.rounds()));
    race.AddRound(times_ns);
  }
  EXPECT_TRUE(race.is_eliminated(1));
  EXPECT_EQ(race.rounds(), 16);
}

// The default's time lies 3 % above the leader's, with intervals that overlap.
TEST(RaceTest, ARaceOfTheLeaderAndTheDefaultEndsWhereTheRulesSay) {
  const auto time_of = [](size_t choice, int32_t round) {
    if (choice == 0) return 98'000 + (round * 5) % 11 * 1'000;
    return 94'000 + (round * (choice == 1 ? 7 : 3)) % 13 * 1'000;
  };
  Race race(2, 0, RaceRules{.max_rounds = 40, .turns_by_default = 3});
  RunToEnd(race, time_of);
  EXPECT_EQ(race.rounds(), 24);
  EXPECT_TRUE(race.is_racing(0));
  Race longer(2, 0, RaceRules{.max_rounds = 40});
  RunToEnd(longer, time_of);
  EXPECT_EQ(longer.rounds(), 40);
  Race with_rival(3, 0, RaceRules{.max_rounds = 40, .turns_by_default = 3});
  RunToEnd(with_rival, time_of);
  EXPECT_GT(with_rival.rounds(), 24) << "choice 2 may be faster than choice 1";
}

TEST(RaceTest, RoundsRotateTheirStart) {
  Race race(3, SIZE_MAX, RaceRules{});
  EXPECT_EQ(race.NextRound(), (std::vector<size_t>{0, 1, 2}));
  race.AddRound({100, 100, 100});
  EXPECT_EQ(race.NextRound(), (std::vector<size_t>{1, 2, 0}));
}

TEST(RaceTest, InvalidSamplesAndFailuresEndToo) {
  Race race(2, SIZE_MAX, RaceRules{.min_rounds = 8, .max_rounds = 12});
  RunToEnd(race, [](size_t, int32_t) { return 0; });
  EXPECT_EQ(race.rounds(), 12);
  Race failed(1, SIZE_MAX, RaceRules{});
  failed.Disqualify(0);
  EXPECT_TRUE(failed.is_over());
  Race stopped(1, SIZE_MAX, RaceRules{});
  stopped.Stop();
  EXPECT_TRUE(stopped.is_over());
}

// The cores were busy: only the long samples began in time.
TEST(RaceTest, AChoiceWhoseSamplesDidNotCountIsMeasuredOn) {
  Race race(2, 0, RaceRules{});
  RunToEnd(race, [](size_t choice, int32_t round) -> int64_t {
    if (choice == 0) return 4'000'000 + round;
    return round < 12 ? 0 : 20'000 + round;
  });
  EXPECT_EQ(race.samples_ns(1).size(), 8u);
  EXPECT_TRUE(race.is_eliminated(0));
  EXPECT_FALSE(race.is_eliminated(1));
}

TEST(RaceTest, NeverMoreRoundsThanAllowed) {
  std::mt19937_64 random(7);
  Race race(3, 1, RaceRules{.min_rounds = 8, .max_rounds = 50});
  RunToEnd(race,
           [&](size_t, int32_t) { return 100'000 + static_cast<int64_t>(random() % 50'000); });
  EXPECT_LE(race.rounds(), 50);
  EXPECT_GE(race.rounds(), 8);
}

// The noise model of the research on search cost: true slow-downs exp(Exp(0.7)), one-sided
// log-normal noise of 3 %, 1 % spikes of 2 to 10 times.
TEST(RaceTest, IsTenTimesCheaperThanFiftySamplesEachAtTwoPercentRegret) {
  std::mt19937_64 random(20260101);
  int cells_over = 0;
  double race_ns = 0;
  double exhaustive_ns = 0;
  constexpr int kCells = 400;
  for (int cell = 0; cell < kCells; ++cell) {
    constexpr size_t kChoices = 12;
    std::vector<double> base_ns(kChoices);
    std::exponential_distribution<double> slower(1 / 0.7);
    for (double& base : base_ns) base = 100'000 * std::exp(slower(random));
    std::normal_distribution<double> noise(0, 0.03);
    std::uniform_real_distribution<double> uniform(0, 1);
    Race race(kChoices, SIZE_MAX, RaceRules{});
    RunToEnd(race, [&](size_t choice, int32_t) {
      double time = base_ns[choice] * std::exp(std::fabs(noise(random)));
      if (uniform(random) < 0.01) time *= 2 + 8 * uniform(random);
      race_ns += time;
      return static_cast<int64_t>(time);
    });
    for (double base : base_ns) exhaustive_ns += 50 * base;
    size_t winner = 0;
    int64_t best_median_ns = INT64_MAX;
    for (size_t i = 0; i < kChoices; ++i) {
      if (race.is_eliminated(i)) continue;
      const int64_t median_ns = MedianWithInterval(race.samples_ns(i)).median_ns;
      if (median_ns < best_median_ns) {
        best_median_ns = median_ns;
        winner = i;
      }
    }
    const double best_ns = *std::min_element(base_ns.begin(), base_ns.end());
    if (base_ns[winner] > 1.02 * best_ns) ++cells_over;
  }
  EXPECT_LE(cells_over, kCells / 100);
  EXPECT_GE(exhaustive_ns / race_ns, 10);
  RecordProperty("times_cheaper", std::to_string(exhaustive_ns / race_ns));
}

}  // namespace
}  // namespace cotune
