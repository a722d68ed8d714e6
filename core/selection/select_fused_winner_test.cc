// The two classes of choices, unfused and fused ones, in SelectWinner and TiedChoices.
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
  // host/ring is inside the noise of the default, and the fused choice inside that of host/ring.
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

// Fused choices that do not win change nothing about the unfused winner but its sentence, and one
// that wins is faster than every unfused one that was timed to the end, by more than the gain.
TEST(SelectFusedWinnerTest, TheUnfusedClassAloneHasTheSameWinner) {
  std::mt19937_64 random(5);
  int fused_wins = 0;
  int unfused_wins = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Verdict> unfused;
    std::vector<Verdict> all;
    for (int i = 0; i < 8; ++i) {
      const bool is_fused = i % 2 == 1;
      const std::string name = "host/" + std::string(1, static_cast<char>('a' + i));
      Verdict verdict = Timed(name + (is_fused ? "?fuse=1" : ""),
                              static_cast<int64_t>((is_fused ? 960 : 990) + random() % 60),
                              static_cast<int64_t>(random() % 6));
      if (random() % 3 == 0) verdict = Outpaced(std::move(verdict));
      if (random() % 3 == 0) verdict.warm_median_ns = static_cast<int64_t>(700 + random() % 50);
      if (random() % 6 == 0) verdict.median_ns = verdict.warm_median_ns = 0;
      verdict.is_default = i == 0;
      all.push_back(verdict);
      if (!is_fused) unfused.push_back(std::move(verdict));
    }
    const Result<Winner> of_all = SelectWinner(Cell(all), {});
    const Result<Winner> of_unfused = SelectWinner(Cell(unfused), {});
    if (!of_all || !of_unfused) continue;
    if (!of_all->id.has_host_keys()) {
      ++unfused_wins;
      EXPECT_EQ(of_all->id, of_unfused->id) << round;
      EXPECT_FALSE(of_all->best_unfused) << round;
      continue;
    }
    ++fused_wins;
    ASSERT_TRUE(of_all->best_unfused) << round;
    for (const Verdict& each : unfused) {
      if (each.outcome != Outcome::kTimed || each.median_ns == 0) continue;
      EXPECT_GT(each.median_ns, 1.02 * static_cast<double>(of_all->median_ns)) << round;
    }
  }
  EXPECT_GT(fused_wins, 100);
  EXPECT_GT(unfused_wins, 100);
}

}  // namespace
}  // namespace cotune
