#include "core/selection/select_winner.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ChoiceId Id(std::string_view text) { return ChoiceId::Parse(text).value(); }

// A verdict with `n` samples around a median, as MedianWithInterval would sum it up.
Verdict Timed(std::string_view id, int64_t median_ns, int64_t half_width_ns = 0, size_t n = 8) {
  Verdict verdict{.id = Id(id)};
  verdict.samples_ns.assign(n, median_ns);
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

Verdict Failed(std::string_view id, Outcome outcome, std::string reason) {
  Verdict verdict{.id = Id(id)};
  verdict.outcome = outcome;
  verdict.reason = std::move(reason);
  return verdict;
}

Verdict Outpaced(Verdict verdict) {
  verdict.outcome = Outcome::kOutpaced;
  return verdict;
}

// A choice that failed after eight samples.
Verdict FailedAfter(std::string_view id, int64_t sample_ns) {
  Verdict verdict = Failed(id, Outcome::kLaunchFailed, "rank 0: broken");
  verdict.samples_ns.assign(8, sample_ns);
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

TEST(MedianIntervalRankTest, EqualsTheTableComputedFromTheExactBinomial) {
  // research: n=8: x(1)..x(8), 10: x(1)..x(10), 20: x(4)..x(17), 30: x(8)..x(23), 50: x(16)..x(35),
  // 100: x(37)..x(64).
  EXPECT_EQ(MedianIntervalRank(7), 0u);
  EXPECT_EQ(MedianIntervalRank(8), 1u);
  EXPECT_EQ(MedianIntervalRank(10), 1u);
  EXPECT_EQ(MedianIntervalRank(20), 4u);
  EXPECT_EQ(MedianIntervalRank(30), 8u);
  EXPECT_EQ(MedianIntervalRank(50), 16u);
  EXPECT_EQ(MedianIntervalRank(100), 37u);
}

TEST(MedianIntervalRankTest, IsTheLargestRankWithNinetyNinePercentForEveryNUpTo60) {
  // Oracle: whole numbers. Pascal's row n, and 2 * sum_{j<k} C(n,j) * 100 <= 2^n.
  std::vector<uint64_t> row = {1};
  for (size_t n = 1; n <= 60; ++n) {
    std::vector<uint64_t> next(n + 1, 1);
    for (size_t j = 1; j < n; ++j) next[j] = row[j - 1] + row[j];
    row = next;
    size_t rank = 0;
    unsigned __int128 tail = 0;
    while (rank <= n / 2) {
      tail += row[rank];
      if (200 * tail > (static_cast<unsigned __int128>(1) << n)) break;
      ++rank;
    }
    EXPECT_EQ(MedianIntervalRank(n), rank) << "n = " << n;
  }
}

TEST(MedianIntervalRankTest, StaysNearTheNormalApproximationForLargeN) {
  // 2.5758: the 99.5 % quantile of the normal distribution.
  for (size_t n : {2000u, 20000u, 100000u}) {
    const double expected =
        static_cast<double>(n) / 2 - 2.5758 * std::sqrt(static_cast<double>(n)) / 2;
    EXPECT_NEAR(static_cast<double>(MedianIntervalRank(n)), expected, 1.5) << n;
  }
}

TEST(MedianWithIntervalTest, TakesOrderStatisticsOfUnsortedSamples) {
  std::vector<int64_t> samples_ns;
  for (int64_t i = 1; i <= 20; ++i) samples_ns.push_back(i * 10);
  std::shuffle(samples_ns.begin(), samples_ns.end(), std::mt19937(7));
  const MedianInterval interval = MedianWithInterval(samples_ns);
  EXPECT_EQ(interval.median_ns, 105);
  EXPECT_EQ(interval.low_ns, 40);
  EXPECT_EQ(interval.high_ns, 170);
}

TEST(MedianWithIntervalTest, EvenMedianIsTheMeanRoundedDownAndFewSamplesGiveTheRange) {
  EXPECT_EQ(MedianWithInterval({10, 13}).median_ns, 11);
  const MedianInterval three = MedianWithInterval({30, 10, 20});
  EXPECT_EQ(three.median_ns, 20);
  EXPECT_EQ(three.low_ns, 10);
  EXPECT_EQ(three.high_ns, 30);
  const MedianInterval none = MedianWithInterval({});
  EXPECT_EQ(none.median_ns, 0);
  EXPECT_EQ(none.high_ns, 0);
  // The mean of two extremes must not overflow.
  EXPECT_EQ(MedianWithInterval({INT64_MIN, INT64_MAX}).median_ns, -1);
  EXPECT_EQ(MedianWithInterval({INT64_MAX, INT64_MAX - 2}).median_ns, INT64_MAX - 1);
}

TEST(SelectWinnerTest, FastestWinsAndSaysByHowMuch) {
  const Winner winner =
      SelectWinner(Cell({Default(Timed("host/two_shot", 41'200, 500)),
                         Timed("host/ring", 35'000, 900), Timed("host/tree", 38'000, 100)}),
                   {})
          .value();
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_EQ(winner.median_ns, 35'000);
  EXPECT_EQ(winner.runner_up, Id("host/tree"));
  EXPECT_EQ(winner.runner_up_median_ns, 38'000);
  EXPECT_EQ(winner.fallback, Id("host/two_shot"));
  EXPECT_EQ(winner.fallback_median_ns, 41'200);
  EXPECT_EQ(winner.why,
            "15.0 % faster than the default host/two_shot (41.2 us); 99 % interval 34.1-35.9 us");
}

TEST(SelectWinnerTest, DefaultWinsInsideTheNoise) {
  const CellResult cell = Cell({Timed("host/ring", 100'000), Default(Timed("host/tree", 102'000))});
  const Winner winner = SelectWinner(cell, {.noise_percent = 2.0}).value();
  EXPECT_EQ(winner.id, Id("host/tree"));
  EXPECT_EQ(winner.runner_up, Id("host/ring"));
  EXPECT_EQ(winner.why,
            "the default, 102.0 us: host/ring (100.0 us) is 2.0 % faster, but that is inside the "
            "noise of 2 %");
  EXPECT_EQ(SelectWinner(cell, {.noise_percent = 1.9}).value().id, Id("host/ring"));
}

TEST(SelectWinnerTest, DefaultWinsWhereIntervalsTouch) {
  const auto winner_with_half_width = [](int64_t half_width_ns) {
    return SelectWinner(Cell({Timed("host/ring", 100'000, 5'000),
                              Default(Timed("host/tree", 110'000, half_width_ns))}),
                        {})
        .value();
  };
  EXPECT_EQ(winner_with_half_width(5'000).id, Id("host/tree"));
  EXPECT_THAT(winner_with_half_width(5'000).why, HasSubstr("their intervals overlap"));
  EXPECT_EQ(winner_with_half_width(4'999).id, Id("host/ring"));
}

TEST(SelectWinnerTest, ADefaultThatTheRaceDroppedIsComparedInItsOwnRounds) {
  Verdict dropped = Default(Timed("host/tree", 100'000));
  dropped.samples_ns.assign(8, 100'000);
  dropped.outcome = Outcome::kOutpaced;
  // Then the machine slowed down: 30 % for all that were left.
  Verdict ring = Timed("host/ring", 117'000, 20'000);
  ring.samples_ns.assign(8, 90'000);
  ring.samples_ns.insert(ring.samples_ns.end(), 12, 117'000);
  const Winner faster = SelectWinner(Cell({ring, dropped}), {}).value();
  EXPECT_EQ(faster.id, Id("host/ring"));
  EXPECT_THAT(faster.why,
              HasSubstr("10.0 % faster than the default host/tree (100.0 us, eliminated early), "
                        "which the race eliminated after 8 rounds; "));
  // The choice that had been faster failed, and the one that is left never was.
  ring.samples_ns.assign(20, 117'000);
  const Winner winner =
      SelectWinner(Cell({ring, FailedAfter("host/gone", 90'000), dropped}), {}).value();
  EXPECT_EQ(winner.id, Id("host/tree"));
  EXPECT_EQ(winner.why,
            "the default, 100.0 us, which the race eliminated after 8 rounds: a choice that was "
            "faster failed later, and host/ring (117.0 us), which is left, did not beat it in the "
            "rounds of both");
}

TEST(SelectWinnerTest, WhyAnEliminatedDefaultIsKeptIsTrue) {
  const auto why_beside = [](std::vector<Verdict> others) {
    others.push_back(Outpaced(Default(Timed("host/tree", 100'000))));
    return SelectWinner(Cell(std::move(others)), {}).value().why;
  };
  const std::string head = "the default, 100.0 us, which the race eliminated after 8 rounds: ";
  EXPECT_EQ(why_beside({Timed("host/ring", 117'000)}),
            head + "host/ring (117.0 us) was not faster in the rounds of both");
  EXPECT_EQ(why_beside({Timed("host/ring", 117'000), FailedAfter("host/gone", 101'000),
                        Failed("host/never", Outcome::kLaunchFailed, "rank 0: broken")}),
            head + "host/ring (117.0 us) was not faster in the rounds of both")
      << "no failed choice was faster";
  Verdict close = Timed("host/ring", 99'000, 2'000);
  close.samples_ns = {97'000, 97'000, 101'000, 101'000, 99'000, 99'000, 99'000, 99'000};
  EXPECT_EQ(why_beside({close}),
            head +
                "host/ring (99.0 us) was faster in the rounds of both, but inside the noise of "
                "2 %");
  Verdict early = Outpaced(Timed("host/ring", 90'000, 12'000));
  early.samples_ns = {90'000, 90'000, 90'000, 102'000, 90'000, 90'000, 90'000, 90'000};
  EXPECT_EQ(why_beside({early}),
            head +
                "host/ring (90.0 us, eliminated early) was faster in the rounds of both, but "
                "their intervals do not show it");
}

// One bad sample of the choice that raced to the end does not make up for all others.
TEST(SelectWinnerTest, AChoiceThatRacedToTheEndReplacesAnEliminatedDefault) {
  const Verdict dropped = Outpaced(Default(Timed("host/tree", 26'200)));
  Verdict one_shot = Timed("host/one_shot", 22'900, 300);
  one_shot.samples_ns.assign(50, 22'900);
  one_shot.samples_ns[3] = 40'000;
  const Winner winner = SelectWinner(Cell({one_shot, dropped}), {}).value();
  EXPECT_EQ(winner.id, Id("host/one_shot"));
  EXPECT_EQ(winner.why,
            "12.6 % faster than the default host/tree (26.2 us, eliminated early), which the race "
            "eliminated after 8 rounds; 99 % interval 22.6-23.2 us");
  EXPECT_EQ(SelectWinner(Cell({Outpaced(one_shot), dropped}), {}).value().id, Id("host/tree"))
      << "it was eliminated as well";
  EXPECT_EQ(
      SelectWinner(Cell({one_shot, dropped, FailedAfter("host/gone", 20'000)}), {}).value().id,
      Id("host/tree"))
      << "the leader failed";
}

TEST(SelectWinnerTest, AfterTheLeaderFailedTheIntervalsOfTheSameRoundsMustShowWhoIsFaster) {
  Verdict dropped = Default(Timed("host/tree", 100'000));
  dropped.samples_ns = {100'000, 90'000, 110'000, 100'000, 95'000, 105'000, 100'000, 100'000};
  dropped.outcome = Outcome::kOutpaced;
  Verdict ring = Timed("host/ring", 80'000);
  const Verdict failed_leader = FailedAfter("host/gone", 70'000);
  const auto winner_with = [&](std::vector<int64_t> samples_ns) {
    ring.samples_ns = std::move(samples_ns);
    return SelectWinner(Cell({ring, dropped, failed_leader}), {}).value().id;
  };
  // The medians differ by 20 %, one round has the opposite order, and the intervals overlap.
  EXPECT_EQ(winner_with({80'000, 80'000, 80'000, 120'000, 80'000, 80'000, 80'000, 80'000}),
            Id("host/tree"));
  EXPECT_EQ(winner_with({80'000, 80'000, 80'000, 89'000, 80'000, 80'000, 80'000, 80'000}),
            Id("host/ring"))
      << "the intervals lie apart";
  // Every round slows both choices alike: the medians overlap, their ratio does not reach 1.
  dropped.samples_ns = {100'000, 200'000, 300'000, 400'000, 500'000, 600'000, 700'000, 800'000};
  EXPECT_EQ(winner_with({90'000, 180'000, 270'000, 360'000, 450'000, 540'000, 630'000, 720'000}),
            Id("host/ring"));
  EXPECT_EQ(winner_with({90'000, 180'000, 270'000, 360'000, 450'000, 540'000, 630'000, 810'000}),
            Id("host/tree"));
}

// A recipe is one way to run a program: its refusal is no reason why none is left.
TEST(SelectWinnerTest, ACellWithoutAChoiceNamesTheBackendsThatRefuseIt) {
  CellResult cell = Cell({});
  EXPECT_EQ(SelectWinner(cell, {}).error().cause, "no backend offers a choice");
  cell.refusals = {{"via=bucket", "no two are independent"}, {"host with fuse=1", "not this"}};
  EXPECT_EQ(SelectWinner(cell, {}).error().cause,
            "no backend offers a choice (via=bucket: no two are independent; host with fuse=1: not "
            "this)");
  cell.refusals.push_back({"host", "one host only"});
  cell.refusals.push_back({"ucx/ring", "too small"});
  EXPECT_EQ(SelectWinner(cell, {}).error().cause,
            "no backend offers a choice (host: one host only; ucx/ring: too small)");
}

TEST(SelectWinnerTest, AnUnsteadyCellRunsTheDefault) {
  Verdict ring = Timed("host/ring", 439'000);
  ring.interval_low_ns = 138'500;
  ring.interval_high_ns = 3'760'000;
  const Verdict tree = Default(Timed("host/tree", 7'295'500));
  CellResult cell = Cell({ring, tree});
  const Winner fastest = SelectWinner(cell, {}).value();
  EXPECT_EQ(fastest.id, Id("host/ring"));
  EXPECT_TRUE(HasWideInterval(cell, fastest));
  cell.is_unsteady = true;
  const Winner winner = SelectWinner(cell, {}).value();
  EXPECT_EQ(winner.id, Id("host/tree"));
  EXPECT_THAT(winner.why,
              HasSubstr("the times were unsteady (other programs used the processors)"));
  EXPECT_THAT(TiedChoices(cell, {}), IsEmpty());
  // Without a default there is nothing else to run.
  CellResult without = Cell({ring});
  without.is_unsteady = true;
  EXPECT_EQ(SelectWinner(without, {}).value().id, Id("host/ring"));
}

TEST(SelectWinnerTest, AnIntervalIsWideBeyondHalfOfTheMedianAndWithEightSamplesOnly) {
  const auto is_wide = [](int64_t half_width_ns, size_t samples) {
    const CellResult cell = Cell({Timed("host/a", 100'000, half_width_ns, samples)});
    return HasWideInterval(cell, SelectWinner(cell, {}).value());
  };
  EXPECT_FALSE(is_wide(25'000, 8));
  EXPECT_TRUE(is_wide(25'001, 8));
  EXPECT_FALSE(is_wide(90'000, 7));
}

TEST(SelectWinnerTest, TheNextBestAreOthersByTheirTimesThoseTimedToTheEndFirst) {
  Verdict wrong = Timed("host/wrong", 1'000);
  wrong.wrong_elements = 1;
  Verdict eliminated = Timed("host/early", 2'000);
  eliminated.outcome = Outcome::kOutpaced;
  const Winner winner =
      SelectWinner(
          Cell({Timed("host/d", 70'000), wrong, eliminated, Default(Timed("host/e", 90'000)),
                Timed("host/a", 40'000), Timed("host/c", 60'000), Timed("host/b", 50'000)}),
          {})
          .value();
  EXPECT_EQ(winner.id, Id("host/a"));
  EXPECT_THAT(winner.next_best, ElementsAre(Id("host/b"), Id("host/c"), Id("host/d")));
  const Winner of_two =
      SelectWinner(Cell({eliminated, Default(Timed("host/e", 1'500)), Timed("host/f", 1'900)}), {})
          .value();
  EXPECT_THAT(of_two.next_best, ElementsAre(Id("host/f"), Id("host/early")));
}

TEST(SelectWinnerTest, DefaultThatIsFastestNamesTheNext) {
  const Winner winner =
      SelectWinner(Cell({Timed("host/ring", 50'000), Default(Timed("host/tree", 40'000))}), {})
          .value();
  EXPECT_EQ(winner.id, Id("host/tree"));
  EXPECT_EQ(winner.why,
            "the default, 40.0 us, and 20.0 % faster than the next, host/ring (50.0 us); 99 % "
            "interval 40.0-40.0 us");
}

TEST(SelectWinnerTest, FailedDefaultIsSaid) {
  Verdict wrong = Default(Timed("host/tree", 10'000));
  wrong.outcome = Outcome::kWrongResult;
  wrong.wrong_elements = 3;
  wrong.reason = "rank 1: 3 elements";
  const Winner winner = SelectWinner(Cell({wrong, Timed("host/ring", 40'000)}), {}).value();
  EXPECT_EQ(winner.id, Id("host/ring"));
  EXPECT_FALSE(winner.fallback.has_value());
  EXPECT_EQ(winner.why,
            "the fastest, 40.0 us; 99 % interval 40.0-40.0 us; the default host/tree failed: "
            "wrong_result, 3 wrong "
            "elements, rank 1: 3 elements");
}

TEST(SelectWinnerTest, ChoicesThatFailedOrComputedWrongNeverWin) {
  Verdict wrong = Timed("host/a", 1'000);
  wrong.wrong_elements = 1;  // whatever the outcome says
  Verdict late = Timed("host/b", 2'000);
  late.outcome = Outcome::kDeadline;
  Verdict launch = Timed("host/c", 3'000);
  launch.outcome = Outcome::kLaunchFailed;
  Verdict outpaced = Timed("host/d", 4'000);
  outpaced.outcome = Outcome::kOutpaced;
  const Winner winner =
      SelectWinner(Cell({wrong, late, launch, outpaced, Default(Timed("host/e", 9'000))}), {})
          .value();
  EXPECT_EQ(winner.id, Id("host/e"));
  EXPECT_EQ(winner.runner_up, Id("host/d"));
  EXPECT_THAT(winner.why, HasSubstr("as fast as the next, host/d (4.0 us, eliminated early)"));
  EXPECT_EQ(SelectWinner(Cell({wrong, late, launch, outpaced}), {}).value().id, Id("host/d"));
}

TEST(SelectWinnerTest, TheRunnerUpHasSamplesEnoughForItsTime) {
  const auto with_samples = [](const char* id, int64_t median_ns, size_t samples) {
    Verdict verdict = Timed(id, median_ns);
    verdict.outcome = Outcome::kOutpaced;
    verdict.samples_ns.assign(samples, median_ns);
    return verdict;
  };
  CellResult cell = Cell({Timed("host/a", 4'000), with_samples("host/b", 4'500, 1),
                          with_samples("host/c", 4'600, 2), with_samples("host/d", 4'700, 5),
                          with_samples("host/e", 4'800, 8)});
  EXPECT_EQ(SelectWinner(cell, {}).value().runner_up, Id("host/d"));
  cell.start_mode = StartMode::kDevice;
  EXPECT_EQ(SelectWinner(cell, {}).value().runner_up, Id("host/c"));
  cell.verdicts.erase(cell.verdicts.begin() + 2, cell.verdicts.end());
  EXPECT_EQ(SelectWinner(cell, {}).value().runner_up, Id("host/b"));
}

TEST(SelectWinnerTest, TiesGoToTheSmallerId) {
  EXPECT_EQ(SelectWinner(Cell({Timed("host/b", 5'000), Timed("host/a", 5'000)}), {}).value().id,
            Id("host/a"));
}

Verdict Warm(Verdict verdict, int64_t warm_median_ns) {
  verdict.warm_median_ns = warm_median_ns;
  return verdict;
}

TEST(SelectWinnerTest, WarmTimesBreakATie) {
  const Winner winner =
      SelectWinner(
          Cell({Default(Timed("nccl/default", 20'000)), Warm(Timed("cuda/a", 15'200), 15'700),
                Warm(Timed("cuda/b", 15'230), 14'600), Timed("cuda/c", 15'600)}),
          {})
          .value();
  EXPECT_EQ(winner.id, Id("cuda/b"));
  EXPECT_EQ(winner.median_ns, 15'230);
  EXPECT_EQ(winner.runner_up, Id("cuda/a"));
  EXPECT_EQ(winner.why,
            "23.9 % faster than the default nccl/default (20.0 us); 99 % interval 15.2-15.2 us; "
            "cuda/a (15.2 us) ties with it, and takes 15.7 us where this one takes 14.6 us when "
            "the buffers are in the cache");
}

TEST(SelectWinnerTest, ATieCountsBothTimes) {
  // 1 % slower cold: wins where it is faster by more than that warm.
  const auto winner_with_warm = [](int64_t warm_ns) {
    return SelectWinner(
               Cell({Warm(Timed("cuda/a", 10'000), 9'900), Warm(Timed("cuda/b", 10'100), warm_ns)}),
               {})
        .value();
  };
  EXPECT_EQ(winner_with_warm(9'803).id, Id("cuda/a"));
  EXPECT_THAT(winner_with_warm(9'803).why, Not(HasSubstr("ties")));
  EXPECT_EQ(winner_with_warm(9'801).id, Id("cuda/b"));
}

TEST(SelectWinnerTest, ATieWithoutADefaultIsSaid) {
  const Winner winner =
      SelectWinner(
          Cell({Warm(Timed("cuda/a", 15'200), 15'700), Warm(Timed("cuda/b", 15'230), 14'600)}), {})
          .value();
  EXPECT_EQ(winner.why,
            "tied, 15.2 us; 99 % interval 15.2-15.2 us; no backend names a default; cuda/a (15.2 "
            "us) ties with it, and takes 15.7 us where this one takes 14.6 us when the buffers are "
            "in the cache");
}

TEST(SelectWinnerTest, WarmTimesCountOnlyAmongTiedChoices) {
  const auto winner_of = [](std::vector<Verdict> verdicts) {
    return SelectWinner(Cell(std::move(verdicts)), {}).value().id;
  };
  EXPECT_EQ(winner_of({Warm(Timed("cuda/a", 10'000), 9'900), Warm(Timed("cuda/b", 10'300), 1)}),
            Id("cuda/a"))
      << "not tied";
  EXPECT_EQ(winner_of({Warm(Timed("cuda/a", 10'000), 9'900), Timed("cuda/b", 10'000)}),
            Id("cuda/a"))
      << "no warm time";
  EXPECT_EQ(winner_of({Timed("cuda/a", 10'000), Warm(Timed("cuda/b", 10'000), 1)}), Id("cuda/a"));
  EXPECT_EQ(winner_of({Warm(Timed("cuda/a", 10'000), 9'900), Warm(Timed("cuda/b", 10'000), -1)}),
            Id("cuda/a"))
      << "no warm time, by a file";
  Verdict failed = Failed("cuda/b", Outcome::kLaunchFailed, "fails");
  failed.warm_median_ns = 1;
  EXPECT_EQ(winner_of({Warm(Timed("cuda/a", 10'000), 9'900), failed}), Id("cuda/a"));
  EXPECT_EQ(winner_of({Warm(Timed("cuda/a", 10'000), 9'900), Warm(Timed("cuda/b", 10'100), 9'000),
                       Default(Timed("nccl/x", 10'150))}),
            Id("nccl/x"))
      << "the default wins inside the noise";
}

TEST(TiedChoicesTest, AreTheFastestAndThoseInsideTheNoiseInOrder) {
  const auto tied = [](std::vector<Verdict> verdicts) {
    return TiedChoices(Cell(std::move(verdicts)), {.noise_percent = 2.0});
  };
  Verdict outpaced = Timed("cuda/o", 10'020);
  outpaced.outcome = Outcome::kOutpaced;
  Verdict hasty = Timed("cuda/h", 10'010, 0, 2);
  hasty.outcome = Outcome::kOutpaced;
  EXPECT_THAT(tied({Timed("cuda/a", 10'200), Timed("cuda/b", 10'201), Timed("cuda/c", 10'000),
                    Failed("cuda/d", Outcome::kDeadline, "late"), outpaced, hasty}),
              ElementsAre(2, 4, 0))
      << "too slow by 1 ns, failed, and of two samples";
  EXPECT_THAT(tied({Timed("cuda/a", 10'000), Timed("cuda/b", 10'201)}), IsEmpty());
  EXPECT_THAT(tied({Timed("cuda/a", 10'000)}), IsEmpty());
  EXPECT_THAT(tied({}), IsEmpty());
  std::vector<Verdict> many;
  for (int i = 0; i < 12; ++i) many.push_back(Timed("cuda/n" + std::to_string(i), 10'000 + i));
  EXPECT_THAT(tied(many), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Timed with other times in the first eight rounds.
Verdict ThatBegan(Verdict verdict, int64_t first_ns) {
  verdict.samples_ns.assign(50, verdict.median_ns);
  std::fill_n(verdict.samples_ns.begin(), 8, first_ns);
  return verdict;
}

// The leader's later rounds were slower than those that the other choice took part in.
TEST(TiedChoicesTest, AnOutpacedChoiceIsComparedInItsOwnRounds) {
  const Verdict leader = ThatBegan(Warm(Timed("cuda/leader", 11'500), 9'000), 10'000);
  const auto winner_beside = [&](int64_t time_ns, int64_t warm_ns) {
    const Verdict dropped = Outpaced(Warm(Timed("cuda/dropped", time_ns), warm_ns));
    return SelectWinner(Cell({leader, dropped}), {}).value().id.text();
  };
  EXPECT_THAT(TiedChoices(Cell({leader, Outpaced(Timed("cuda/dropped", 10'400))}), {}), IsEmpty());
  EXPECT_EQ(winner_beside(10'400, 8'000), "cuda/leader");
  EXPECT_THAT(TiedChoices(Cell({leader, Outpaced(Timed("cuda/dropped", 10'150))}), {}),
              ElementsAre(0, 1));
  EXPECT_EQ(winner_beside(10'150, 8'000), "cuda/dropped");
  EXPECT_EQ(winner_beside(10'150, 8'900), "cuda/leader") << "1.015 x 8.9 is more than 9.0";
  EXPECT_EQ(winner_beside(9'000, 8'990), "cuda/dropped");
  EXPECT_EQ(winner_beside(9'000, 9'010), "cuda/leader") << "it counts as no faster than the leader";
}

TEST(TiedChoicesTest, AnOutpacedChoiceNeedsAnIntervalOnDevices) {
  Verdict fastest = Warm(Timed("cuda/f", 10'000, 0, 50), 9'500);
  fastest.samples_ns[0] = 17'000;  // a spike, so that the first two are 13.5 us
  CellResult cell = Cell({fastest, Outpaced(Warm(Timed("cuda/o", 13'000, 0, 2), 9'400))});
  cell.start_mode = StartMode::kDevice;
  EXPECT_THAT(TiedChoices(cell, {}), IsEmpty());
  EXPECT_EQ(SelectWinner(cell, {}).value().id, Id("cuda/f"));
}

TEST(TiedChoicesTest, TheDefaultIsComparedInTheRoundsOfAnOutpacedChoice) {
  const Verdict fastest = ThatBegan(Timed("cuda/f", 11'500), 10'000);
  const auto tied_beside = [&](const Verdict& fallback) {
    return TiedChoices(Cell({fastest, Outpaced(Timed("cuda/o", 10'150)), Default(fallback)}), {});
  };
  EXPECT_THAT(tied_beside(ThatBegan(Timed("nccl/x", 12'300), 10'300)), IsEmpty())
      << "inside the noise of the other";
  EXPECT_THAT(tied_beside(ThatBegan(Timed("nccl/x", 12'300), 10'500)), ElementsAre(0, 1));
  EXPECT_THAT(tied_beside(Outpaced(Timed("nccl/x", 10'300))), ElementsAre(0, 1));
  EXPECT_THAT(tied_beside(Outpaced(Timed("nccl/x", 10'100))), IsEmpty()) << "faster than the other";
}

TEST(TiedChoicesTest, NoneTiesBesideADefaultThatWins) {
  const auto tied = [](std::vector<Verdict> verdicts) {
    return TiedChoices(Cell(std::move(verdicts)), {.noise_percent = 2.0});
  };
  EXPECT_THAT(
      tied({Default(Timed("nccl/x", 9'900)), Timed("cuda/a", 10'000), Timed("cuda/b", 10'000)}),
      IsEmpty())
      << "the default is the fastest";
  EXPECT_THAT(
      tied({Default(Timed("nccl/x", 10'100)), Timed("cuda/a", 10'000), Timed("cuda/b", 10'000)}),
      IsEmpty())
      << "the default is inside the noise";
  // The default is outside of the noise of a and b, and inside that of c.
  EXPECT_THAT(tied({Default(Timed("nccl/x", 10'300)), Timed("cuda/a", 10'000),
                    Timed("cuda/b", 10'050), Timed("cuda/c", 10'150)}),
              ElementsAre(1, 2));
}

TEST(SelectWinnerTest, OfSeveralDefaultsTheFirstThatHasATimeCounts) {
  const Winner winner =
      SelectWinner(Cell({Default(Failed("a/x", Outcome::kLaunchFailed, "rank 0: broken")),
                         Default(Timed("b/y", 100'000)), Default(Timed("c/z", 99'000))}),
                   {})
          .value();
  EXPECT_EQ(winner.id, Id("b/y"));
  EXPECT_EQ(winner.fallback, Id("b/y"));
}

TEST(SelectWinnerTest, WithoutAnyTimeEveryFateIsTold) {
  const Result<Winner> winner =
      SelectWinner(Cell({Failed("host/ring", Outcome::kPrecompileFailed, "rank 2: no memory"),
                         Failed("host/tree", Outcome::kDeadline, "rank 0")}),
                   {});
  ASSERT_FALSE(winner.has_value());
  EXPECT_EQ(winner.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(winner.error().cause, HasSubstr("host/ring: precompile_failed, rank 2: no memory"));
  EXPECT_THAT(winner.error().cause, HasSubstr("host/tree: deadline, rank 0"));
}

// host/c has the best time of both heats, but only from the first.
TEST(JoinHeatsTest, TheSecondHeatAloneDecides) {
  Verdict best_of_first = Timed("host/c", 900);
  best_of_first.warm_median_ns = 10;
  CellResult first = Cell({Default(Timed("host/a", 2000)), Timed("host/b", 890), best_of_first,
                           Failed("host/d", Outcome::kDeadline, "rank 0")});
  first.verdicts[1].outcome = Outcome::kOutpaced;
  first.refusals = {{"host/e", "no"}};
  first.invalid_rounds = 2;
  CellResult second =
      Cell({Default(Timed("host/a", 2100)), Timed("host/b", 1010), Timed("host/f", 980)});
  second.invalid_rounds = 3;
  second.sm_clock_mhz = 1980;

  const DecidedCell decided = Decide(JoinHeats(first, second), {});
  ASSERT_TRUE(decided.winner.has_value());
  EXPECT_EQ(decided.winner->id, Id("host/f"));
  EXPECT_EQ(decided.winner->runner_up, Id("host/b"));
  EXPECT_EQ(decided.winner->fallback_median_ns, 2100);
  const std::vector<Verdict>& verdicts = decided.cell.verdicts;
  ASSERT_EQ(verdicts.size(), 5u);
  EXPECT_EQ(verdicts[0].median_ns, 2100);
  EXPECT_EQ(verdicts[1].median_ns, 1010);
  EXPECT_EQ(verdicts[2].id, Id("host/f"));
  EXPECT_EQ(verdicts[3].id, Id("host/c"));
  EXPECT_EQ(verdicts[3].outcome, Outcome::kLostHeat);
  EXPECT_EQ(verdicts[3].median_ns, 900) << "its time is still told";
  EXPECT_EQ(verdicts[4].outcome, Outcome::kDeadline);
  EXPECT_EQ(decided.cell.invalid_rounds, 5);
  EXPECT_EQ(decided.cell.sm_clock_mhz, 1980);
  ASSERT_EQ(decided.cell.refusals.size(), 1u);
  EXPECT_EQ(decided.cell.refusals[0].choice, "host/e");
}

// Choices of the first heat alone change nothing, also where the leader of the second fails, or
// all of it does, or choices tie there.
TEST(JoinHeatsTest, TheWinnerIsAlwaysThatOfTheSecondHeat) {
  std::mt19937_64 random(11);
  const auto random_cell = [&](char begin, char end) {
    CellResult cell = Cell({});
    for (char name = begin; name < end; ++name) {
      const auto median_ns = static_cast<int64_t>(990 + random() % 30);
      Verdict verdict = Timed(std::string("host/") + name, median_ns,
                              static_cast<int64_t>(random() % 12), 2 + random() % 12);
      if (random() % 3 == 0) verdict.warm_median_ns = static_cast<int64_t>(700 + random() % 50);
      switch (random() % 5) {
        case 0:
          verdict.outcome = Outcome::kOutpaced;
          break;
        case 1:
          verdict.outcome = Outcome::kWrongResult;
          verdict.wrong_elements = 1;
          verdict.median_ns = verdict.warm_median_ns = 0;
          break;
        default:
          break;
      }
      verdict.is_default = name == 'a';
      cell.verdicts.push_back(std::move(verdict));
    }
    return cell;
  };
  int without_winner = 0;
  for (int round = 0; round < 3000; ++round) {
    const CellResult first = random_cell('a', 'i');
    const CellResult second = random_cell(round % 2 == 0 ? 'a' : 'e', round % 3 == 0 ? 'g' : 'l');
    const DecidedCell alone = Decide(second, {});
    const DecidedCell joined = Decide(JoinHeats(first, second), {});
    ASSERT_EQ(joined.winner.has_value(), alone.winner.has_value()) << round;
    if (!alone.winner) {
      ++without_winner;
      continue;
    }
    EXPECT_EQ(joined.winner->id, alone.winner->id) << round;
    EXPECT_EQ(joined.winner->runner_up, alone.winner->runner_up) << round;
    EXPECT_EQ(joined.winner->fallback, alone.winner->fallback) << round;
  }
  EXPECT_GT(without_winner, 0);
}

TEST(MergeRangesTest, BoundariesLieAtTheGeometricMeanAndEqualNeighboursMerge) {
  const std::vector<std::pair<uint64_t, ChoiceId>> winners = {
      {1024, Id("h/a")}, {4096, Id("h/b")}, {8192, Id("h/b")}, {32768, Id("h/a")}};
  const std::vector<SizeRange> ranges = MergeRanges(winners);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0], (SizeRange{0, 2048, Id("h/a")}));
  EXPECT_EQ(ranges[1], (SizeRange{2048, 16384, Id("h/b")}));
  EXPECT_EQ(ranges[2], (SizeRange{16384, UINT64_MAX, Id("h/a")}));
}

TEST(MergeRangesTest, OneSizeCoversAll) {
  const std::vector<std::pair<uint64_t, ChoiceId>> winners = {{7, Id("h/a")}};
  EXPECT_EQ(MergeRanges(winners), (std::vector<SizeRange>{{0, UINT64_MAX, Id("h/a")}}));
}

TEST(MergeRangesTest, EveryMeasuredSizeKeepsItsWinnerAndBoundariesAreExact) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<uint64_t, ChoiceId>> winners;
    uint64_t bytes = random() % 3;
    for (int i = 0; i < 12; ++i) {
      winners.emplace_back(bytes, Id(i % 2 == 0 ? "h/a" : "h/b"));  // never equal neighbours
      const uint64_t step = 1 + (random() >> (random() % 60 + 4));
      if (bytes > UINT64_MAX - step) break;
      bytes += step;
    }
    const std::vector<SizeRange> ranges = MergeRanges(winners);
    ASSERT_EQ(ranges.size(), winners.size());
    uint64_t expected_first = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(ranges[i].first_bytes, expected_first);
      EXPECT_LE(ranges[i].first_bytes, winners[i].first);
      EXPECT_TRUE(winners[i].first < ranges[i].end_bytes || ranges[i].end_bytes == UINT64_MAX);
      EXPECT_EQ(ranges[i].choice, winners[i].second);
      expected_first = ranges[i].end_bytes;
      if (i == 0) continue;
      // The boundary is the least integer that is above the smaller size and whose square reaches
      // the product.
      const unsigned __int128 product =
          static_cast<unsigned __int128>(winners[i - 1].first) * winners[i].first;
      const unsigned __int128 boundary = ranges[i].first_bytes;
      EXPECT_TRUE(boundary * boundary >= product);
      EXPECT_TRUE((boundary - 1) * (boundary - 1) < product ||
                  boundary == winners[i - 1].first + 1);
    }
    EXPECT_EQ(expected_first, UINT64_MAX);
  }
}

}  // namespace
}  // namespace cotune
