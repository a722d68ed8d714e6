// The two classes of choices, unfused and fused ones, in SelectWinner and TiedChoices.
#include <algorithm>
#include <iterator>
#include <optional>
#include <random>

#include "core/selection/select_winner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ChoiceId Id(std::string_view text) { return ChoiceId::Parse(text).value(); }

Verdict Timed(std::string_view id, int64_t median_ns, int64_t half_width_ns = 0) {
  Verdict verdict{.id = Id(id)};
  verdict.samples_ns.assign(8, median_ns);
  verdict.repetitions = 1;
  verdict.median_ns = median_ns;
  verdict.interval_low_ns = median_ns - half_width_ns;
  verdict.interval_high_ns = median_ns + half_width_ns;
  return verdict;
}

Verdict Default(Verdict verdict) {
  verdict.is_default = true;
  return verdict;
}

Verdict Outpaced(Verdict verdict) {
  verdict.outcome = Outcome::kOutpaced;
  return verdict;
}

Verdict Warm(Verdict verdict, int64_t warm_median_ns) {
  verdict.warm_median_ns = warm_median_ns;
  return verdict;
}

Verdict Failed(std::string_view id) {
  Verdict verdict{.id = Id(id)};
  verdict.outcome = Outcome::kLaunchFailed;
  verdict.reason = "rank 0: broken";
  return verdict;
}

CellResult Cell(std::vector<Verdict> verdicts) {
  CellResult cell;
  cell.problem.cls.reduction = Reduction::kSum;
  cell.problem.cls.world_size = 4;
  cell.problem.cls.ranks_per_node = 4;
  cell.problem.count = 256;
  cell.verdicts = std::move(verdicts);
  return cell;
}

Winner WinnerOf(std::vector<Verdict> verdicts, const SelectionRules& rules = {}) {
  return SelectWinner(Cell(std::move(verdicts)), rules).value();
}

// No list has one, but a database may.
TEST(SelectFusedWinnerTest, AFusedDefaultIsNoDefault) {
  const Winner winner = WinnerOf({Default(Timed("host/ring?fuse=1", 100'000))});
  EXPECT_EQ(winner.id, Id("host/ring?fuse=1"));
  EXPECT_EQ(winner.fallback, std::nullopt);
}

TEST(SelectFusedWinnerTest, BeyondTheThresholdTheFusedChoiceWins) {
  const Winner winner =
      WinnerOf({Default(Timed("host/tree", 120'000)), Timed("host/ring", 103'000),
                Timed("host/ring?fuse=1.2", 100'000), Timed("host/ring?fuse=1", 101'000)});
  EXPECT_EQ(winner.id, Id("host/ring?fuse=1.2"));
  EXPECT_EQ(winner.best_unfused, (TimedChoice{Id("host/ring"), 103'000}));
  EXPECT_EQ(winner.runner_up, Id("host/ring?fuse=1"));
  EXPECT_EQ(winner.fallback, Id("host/tree"));
  EXPECT_THAT(winner.next_best, ElementsAre(Id("host/ring?fuse=1"), Id("host/ring")));
  EXPECT_EQ(winner.why,
            "16.7 % faster than the default host/tree (120.0 us); 99 % interval 100.0-100.0 us; "
            "2.9 % faster than the fastest unfused choice, host/ring (103.0 us)");
}

TEST(SelectFusedWinnerTest, WithinTheThresholdTheUnfusedChoiceStays) {
  const Winner winner = WinnerOf({Default(Timed("host/tree", 120'000)), Timed("host/ring", 101'500),
                                  Timed("host/ring?fuse=1.2", 100'000)});
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_EQ(winner.best_unfused, std::nullopt);
  EXPECT_EQ(winner.runner_up, Id("host/ring?fuse=1.2"));
  EXPECT_THAT(winner.next_best, ElementsAre(Id("host/ring?fuse=1.2")));
  EXPECT_EQ(winner.why,
            "15.4 % faster than the default host/tree (120.0 us); 99 % interval 101.5-101.5 us; "
            "host/ring?fuse=1.2 (100.0 us) was faster, but by less than fusion_speedup_threshold "
            "(1.02)");
}

TEST(SelectFusedWinnerTest, TheThresholdIsThatOfTheRules) {
  const auto winner_by = [](double threshold, int64_t unfused_ns) {
    return WinnerOf({Timed("host/ring", unfused_ns), Timed("host/ring?via=split", 100'000)},
                    {.noise_percent = 2, .fusion_speedup_threshold = threshold})
        .id.text();
  };
  EXPECT_EQ(winner_by(1.1, 110'000), "host/ring");
  EXPECT_EQ(winner_by(1.1, 110'001), "host/ring?via=split");
  EXPECT_EQ(winner_by(1.02, 102'000), "host/ring");
  EXPECT_EQ(winner_by(1.02, 102'001), "host/ring?via=split");
  TuningSettings settings;
  settings.noise_percent = 3;
  settings.fusion.speedup_threshold = 1.5;
  EXPECT_EQ(SelectionRules::Of(settings).noise_percent, 3);
  EXPECT_EQ(SelectionRules::Of(settings).fusion_speedup_threshold, 1.5);
}

TEST(SelectFusedWinnerTest, ANoiseAboveTheThresholdCounts) {
  const std::vector<Verdict> verdicts = {Timed("host/ring", 104'000),
                                         Timed("host/ring?fuse=1", 100'000)};
  const Winner winner = WinnerOf(verdicts, {.noise_percent = 5});
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_EQ(winner.why,
            "the fastest unfused choice, 104.0 us; 99 % interval 104.0-104.0 us; no backend names "
            "a default; host/ring?fuse=1 (100.0 us) was faster, but inside the noise of 5 %");
  EXPECT_EQ(WinnerOf(verdicts, {.noise_percent = 3}).id, Id("host/ring?fuse=1"));
  EXPECT_EQ(WinnerOf(verdicts, {.noise_percent = 0, .fusion_speedup_threshold = 1}).id,
            Id("host/ring?fuse=1"));
}

TEST(SelectFusedWinnerTest, WithoutAnUnfusedTimeTheBestFusedOneWins) {
  const Winner winner =
      WinnerOf({Default(Failed("host/tree")), Failed("host/ring"),
                Timed("host/ring?fuse=1", 100'000), Timed("host/ring?fuse=1.2", 99'000)});
  EXPECT_EQ(winner.id, Id("host/ring?fuse=1.2"));
  EXPECT_EQ(winner.best_unfused, std::nullopt);
  EXPECT_EQ(winner.fallback, std::nullopt);
  EXPECT_EQ(winner.why,
            "the fastest, 99.0 us; 99 % interval 99.0-99.0 us; the default host/tree failed: "
            "launch_failed, rank 0: broken");
  EXPECT_EQ(WinnerOf({Failed("host/ring?fuse=1"), Timed("host/ring", 100'000)}).id,
            Id("host/ring"));
}

TEST(SelectFusedWinnerTest, TheDefaultWinsInsideItsClassAsBefore) {
  // host/ring and the fused choice are inside the noise of the default.
  const Winner winner = WinnerOf({Default(Timed("host/tree", 102'000)), Timed("host/ring", 101'000),
                                  Timed("host/ring?fuse=1", 100'000)});
  EXPECT_EQ(winner.id, Id("host/tree"));
  EXPECT_EQ(winner.why,
            "the default, 102.0 us: host/ring (101.0 us) is 1.0 % faster, but that is inside the "
            "noise of 2 %; host/ring?fuse=1 (100.0 us) was faster, but by less than "
            "fusion_speedup_threshold (1.02)");
  // The default is the fastest of its class.
  const Winner fastest =
      WinnerOf({Default(Timed("host/tree", 101'000)), Timed("host/ring", 110'000),
                Timed("host/ring?fuse=1", 100'000)});
  EXPECT_EQ(fastest.id, Id("host/tree"));
  EXPECT_EQ(fastest.why,
            "the default, 101.0 us, and 8.2 % faster than the next, host/ring (110.0 us); 99 % "
            "interval 101.0-101.0 us; host/ring?fuse=1 (100.0 us) was faster, but by less than "
            "fusion_speedup_threshold (1.02)");
}

TEST(SelectFusedWinnerTest, TheIntervalsMustShowThatItBeatsTheDefault) {
  const auto winner_by_width = [](int64_t half_width_ns) {
    return WinnerOf({Default(Timed("host/tree", 110'000, 5'000)),
                     Timed("host/tree?fuse=1", 100'000, half_width_ns)});
  };
  EXPECT_EQ(winner_by_width(4'999).id, Id("host/tree?fuse=1"));
  EXPECT_EQ(winner_by_width(5'000).id, Id("host/tree"));
  EXPECT_THAT(winner_by_width(5'000).why,
              HasSubstr("host/tree?fuse=1 (100.0 us) was faster, but the intervals do not show "
                        "that it beats the default host/tree"));
}

// The fused choice is inside the threshold of host/ring, which does not replace the default.
TEST(SelectFusedWinnerTest, ItIsComparedWithTheUnfusedChoiceThatWouldRun) {
  const Winner in_noise =
      WinnerOf({Default(Timed("host/tree", 102'100)), Timed("host/ring", 101'000),
                Timed("host/ring?fuse=1", 100'000)});
  EXPECT_EQ(in_noise.id, Id("host/ring?fuse=1"));
  EXPECT_EQ(in_noise.best_unfused, (TimedChoice{Id("host/ring"), 101'000}));
  EXPECT_EQ(in_noise.why,
            "2.1 % faster than the default host/tree (102.1 us); 99 % interval 100.0-100.0 us; "
            "1.0 % faster than the fastest unfused choice, host/ring (101.0 us), which would not "
            "replace the default");
  // It eliminated both unfused ones.
  Verdict ring = Outpaced(Timed("host/one_shot", 32'700));
  ring.samples_ns = {32'700, 32'700, 37'000, 32'700, 32'700, 32'700, 32'700, 32'700};
  const Verdict fused = Timed("host/two_shot?fuse=1.2", 32'400);
  const Winner alone = WinnerOf({Outpaced(Default(Timed("host/two_shot", 36'200))), ring, fused});
  EXPECT_EQ(alone.id, fused.id);
  EXPECT_THAT(alone.why, HasSubstr("10.5 % faster than the default host/two_shot (36.2 us, "
                                   "eliminated early), which the race eliminated after 8 rounds"));
}

// The default is no slower than host/ring beyond doubt, but slower than the fused choice.
TEST(SelectFusedWinnerTest, AnUnfusedChoiceAsFastAsAFusedOneThatBeatsTheDefaultWins) {
  const auto winner_beside = [](int64_t fused_ns) {
    return WinnerOf({Default(Timed("host/tree", 110'000)), Timed("host/ring", 100'000, 10'000),
                     Timed("host/ring?fuse=1", fused_ns)});
  };
  const Winner winner = winner_beside(105'000);
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_EQ(winner.why,
            "9.1 % faster than the default host/tree (110.0 us); 99 % interval 90.0-110.0 us; by "
            "itself it would not replace the default, which host/ring?fuse=1 (105.0 us) beats");
  EXPECT_EQ(winner_beside(99'999).id, Id("host/ring?fuse=1"));
  EXPECT_EQ(winner_beside(108'000).id, Id("host/tree")) << "inside the noise of the default";
}

TEST(SelectFusedWinnerTest, AnEliminatedUnfusedChoiceIsComparedInItsOwnRounds) {
  // Later rounds were slower, for the fused choice alone, because the other one had left.
  Verdict fused = Timed("host/ring?fuse=1", 120'000);
  fused.samples_ns.assign(8, 100'000);
  fused.samples_ns.insert(fused.samples_ns.end(), 12, 120'000);
  const Winner close = WinnerOf({fused, Outpaced(Timed("host/ring", 101'900))});
  EXPECT_EQ(close.id, Id("host/ring"));
  EXPECT_THAT(close.why, EndsWith("host/ring?fuse=1 (100.0 us) was faster, but by less than "
                                  "fusion_speedup_threshold (1.02)"));
  const Winner far = WinnerOf({fused, Outpaced(Timed("host/ring", 102'100))});
  EXPECT_EQ(far.id, Id("host/ring?fuse=1"));
  EXPECT_EQ(far.best_unfused, (TimedChoice{Id("host/ring"), 102'100}));
  EXPECT_THAT(far.why, EndsWith("2.1 % faster than the fastest unfused choice, host/ring (102.1 "
                                "us, eliminated early)"));
}

TEST(SelectFusedWinnerTest, AnEliminatedFusedChoiceDoesNotBeatOneThatWasTimedToTheEnd) {
  const Winner winner =
      WinnerOf({Timed("host/ring", 100'000), Outpaced(Timed("host/ring?fuse=1", 80'000))});
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_THAT(winner.why, Not(HasSubstr("was faster")));
}

TEST(SelectFusedWinnerTest, AnUnsteadyCellRunsAnUnfusedChoice) {
  CellResult cell = Cell({Timed("host/ring?fuse=1", 50'000), Timed("host/ring", 100'000)});
  cell.is_unsteady = true;
  EXPECT_EQ(SelectWinner(cell, {}).value().id, Id("host/ring"));
  cell.verdicts.push_back(Default(Timed("host/tree", 110'000)));
  EXPECT_EQ(SelectWinner(cell, {}).value().id, Id("host/tree"));
  cell.verdicts.erase(cell.verdicts.begin() + 1, cell.verdicts.end());
  EXPECT_EQ(SelectWinner(cell, {}).value().id, Id("host/ring?fuse=1"));
}

TEST(SelectFusedWinnerTest, OneOfTheNextBestIsUnfused) {
  const Winner winner =
      WinnerOf({Default(Timed("host/tree", 200'000)), Timed("host/ring", 150'000),
                Timed("host/a?fuse=1", 100'000), Timed("host/b?fuse=1", 101'000),
                Timed("host/c?fuse=1", 102'000), Timed("host/d?fuse=1", 103'000)});
  EXPECT_THAT(winner.next_best,
              ElementsAre(Id("host/b?fuse=1"), Id("host/c?fuse=1"), Id("host/ring")));
}

TEST(SelectFusedWinnerTest, AStepWithAKeyOfTheHostMakesTheChoiceFused) {
  EXPECT_EQ(WinnerOf({Timed("host/ring+host/tree", 101'000),
                      Timed("host/ring+host/tree?fuse=1", 100'000)})
                .id,
            Id("host/ring+host/tree"));
}

TEST(FusedTiesTest, ChoicesTieWithinTheClassOfTheWinnerOnly) {
  const auto tied = [](std::vector<Verdict> verdicts) {
    return TiedChoices(Cell(std::move(verdicts)), {});
  };
  EXPECT_THAT(tied({Timed("host/a", 103'000), Timed("host/b", 103'100),
                    Timed("host/c?fuse=1", 100'000), Timed("host/d?fuse=1", 100'100)}),
              ElementsAre(2, 3));
  EXPECT_THAT(tied({Timed("host/a", 101'000), Timed("host/b", 101'100),
                    Timed("host/c?fuse=1", 100'000), Timed("host/d?fuse=1", 100'100)}),
              ElementsAre(0, 1));
  EXPECT_THAT(tied({Timed("host/a", 101'000), Timed("host/c?fuse=1", 100'000)}), IsEmpty());
  // Against host/a, host/d would be inside the threshold.
  EXPECT_THAT(tied({Timed("host/a", 103'000), Timed("host/c?fuse=1", 100'000),
                    Timed("host/d?fuse=1", 101'500)}),
              IsEmpty());
}

TEST(FusedTiesTest, WarmTimesDecideWithinTheClass) {
  const std::vector<Verdict> unfused = {Warm(Timed("host/a", 101'000), 90'000),
                                        Warm(Timed("host/b", 101'100), 80'000)};
  std::vector<Verdict> verdicts = unfused;
  verdicts.push_back(Warm(Timed("host/c?fuse=1", 100'000), 10'000));
  const Winner winner = WinnerOf(verdicts);
  EXPECT_EQ(winner.id, Id("host/b"));
  EXPECT_THAT(winner.why, HasSubstr("host/a (101.0 us) ties with it"));
  EXPECT_THAT(winner.why, HasSubstr("host/c?fuse=1 (100.0 us) was faster"));
  verdicts[0].median_ns = verdicts[1].median_ns = 110'000;
  verdicts.push_back(Warm(Timed("host/d?fuse=1", 100'100), 5'000));
  EXPECT_EQ(WinnerOf(verdicts).id, Id("host/d?fuse=1"));
}

// A verdict of samples around `center_ns`, summed up as the race does.
Verdict Sampled(std::string_view id, int64_t center_ns, size_t samples, std::mt19937_64& random) {
  Verdict verdict{.id = Id(id), .repetitions = 1};
  for (size_t i = 0; i < samples; ++i) {
    const auto spike_ns = random() % 10 == 0 ? static_cast<int64_t>(random() % 400) : 0;
    verdict.samples_ns.push_back(center_ns + static_cast<int64_t>(random() % 30) + spike_ns);
  }
  const MedianInterval interval = MedianWithInterval(verdict.samples_ns);
  verdict.median_ns = interval.median_ns;
  verdict.interval_low_ns = interval.low_ns;
  verdict.interval_high_ns = interval.high_ns;
  return verdict;
}

// Eight choices, of which every second one is fused and the first is the default.
std::vector<Verdict> RandomVerdicts(std::mt19937_64& random) {
  std::vector<Verdict> verdicts;
  for (int i = 0; i < 8; ++i) {
    const bool is_fused = i % 2 == 1;
    const std::string name = "host/" + std::string(1, static_cast<char>('a' + i));
    const bool is_eliminated = random() % 3 == 0;
    Verdict verdict = Sampled(name + (is_fused ? "?fuse=1" : ""),
                              static_cast<int64_t>((is_fused ? 960 : 990) + random() % 100),
                              is_eliminated ? 8 + random() % 4 : 20, random);
    if (is_eliminated) verdict = Outpaced(std::move(verdict));
    if (random() % 8 == 0) verdict.outcome = Outcome::kLaunchFailed;
    if (random() % 8 == 0) verdict.median_ns = 0;
    verdict.is_default = i == 0;
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

// The median of the first `count` samples.
int64_t MedianOfFirst(const Verdict& verdict, size_t count) {
  return MedianWithInterval({verdict.samples_ns.begin(),
                             verdict.samples_ns.begin() + static_cast<std::ptrdiff_t>(count)})
      .median_ns;
}

// The factor by which the slow one takes longer, in the rounds of both.
double Slowdown(const Verdict& slow, const Verdict& fast) {
  const size_t rounds = std::min(slow.samples_ns.size(), fast.samples_ns.size());
  return static_cast<double>(MedianOfFirst(slow, rounds)) /
         static_cast<double>(MedianOfFirst(fast, rounds));
}

bool HasFailed(const Verdict& verdict) {
  return verdict.median_ns == 0 || verdict.outcome == Outcome::kLaunchFailed;
}

// No choice that raced to the end is faster than the winner by more than the gain that a fused one
// needs; but the default may win where its interval overlaps the other one's, or, if the race
// eliminated it, after a choice that was faster failed.
TEST(SelectFusedWinnerTest, NoChoiceThatRacedToTheEndIsMuchFasterThanTheWinner) {
  std::mt19937_64 random(17);
  int defaults_beaten = 0;
  int eliminated_defaults = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::vector<Verdict> verdicts = RandomVerdicts(random);
    const Result<Winner> winner = SelectWinner(Cell(verdicts), {});
    if (!winner) continue;
    const Verdict& chosen =
        *std::find_if(verdicts.begin(), verdicts.end(),
                      [&](const Verdict& verdict) { return verdict.id == winner->id; });
    const bool has_failure = std::any_of(verdicts.begin(), verdicts.end(), HasFailed);
    const bool is_eliminated = chosen.outcome == Outcome::kOutpaced;
    if (chosen.is_default && is_eliminated && has_failure) continue;
    if (chosen.is_default && is_eliminated) ++eliminated_defaults;
    if (!chosen.is_default) ++defaults_beaten;
    for (const Verdict& other : verdicts) {
      if (other.outcome != Outcome::kTimed || HasFailed(other) || other.id == chosen.id) continue;
      const bool may_overlap = chosen.is_default && !is_eliminated;
      const bool overlaps = chosen.interval_low_ns <= other.interval_high_ns;
      if (may_overlap && overlaps) continue;
      EXPECT_LE(Slowdown(chosen, other), 1.0201) << round << ": " << winner->why;
    }
  }
  EXPECT_GT(defaults_beaten, 1000);
  EXPECT_GT(eliminated_defaults, 20);
}

// Fused choices that do not win change nothing about the unfused winner but its sentence, unless
// they beat the default that was kept against it. One that wins is faster than every unfused choice
// that was timed to the end, and the fused ones have the gain over the winner without them.
TEST(SelectFusedWinnerTest, TheUnfusedClassAloneHasTheSameWinner) {
  std::mt19937_64 random(5);
  int fused_wins = 0;
  int unfused_wins = 0;
  int defaults_beaten = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Verdict> all = RandomVerdicts(random);
    std::vector<Verdict> unfused;
    // A fused choice that failed may be the one that eliminated the default.
    std::copy_if(all.begin(), all.end(), std::back_inserter(unfused), [](const Verdict& verdict) {
      return !verdict.id.has_host_keys() || HasFailed(verdict);
    });
    const Result<Winner> of_all = SelectWinner(Cell(all), {});
    const Result<Winner> of_unfused = SelectWinner(Cell(unfused), {});
    if (!of_all || !of_unfused) continue;
    if (!of_all->id.has_host_keys()) {
      ++unfused_wins;
      EXPECT_FALSE(of_all->best_unfused) << round;
      if (of_all->id == of_unfused->id) continue;
      ++defaults_beaten;
      EXPECT_EQ(of_unfused->id, of_unfused->fallback) << round;
      EXPECT_THAT(of_all->why, HasSubstr("by itself it would not replace the default")) << round;
      continue;
    }
    ++fused_wins;
    ASSERT_TRUE(of_all->best_unfused) << round;
    const auto verdict_of = [&](const ChoiceId& id) -> const Verdict& {
      return *std::find_if(all.begin(), all.end(), [&](const Verdict& v) { return v.id == id; });
    };
    const Verdict& fused = verdict_of(of_all->id);
    double slowdown = 0;
    for (const Verdict& each : all) {
      if (each.outcome != fused.outcome || HasFailed(each)) continue;
      if (each.id.has_host_keys()) {
        slowdown = std::max(slowdown, Slowdown(verdict_of(of_unfused->id), each));
      } else if (each.outcome == Outcome::kTimed) {
        EXPECT_GT(each.median_ns, fused.median_ns) << round;
      }
    }
    EXPECT_GT(slowdown, 1.0199) << round;
  }
  EXPECT_GT(fused_wins, 100);
  EXPECT_GT(unfused_wins, 100);
  EXPECT_GT(defaults_beaten, 3);
}

}  // namespace
}  // namespace cotune
