#include "core/benchmark/calibration.h"

#include <vector>

#include "core/testing/cell_on_ranks.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr int64_t kSampleNs = 500'000;

SampleRepetitions OnHost() { return {kSampleNs, 1, MemoryKind::kHost}; }

RacingChoice Calibrated(int32_t repetitions, int64_t call_ns) {
  RacingChoice choice{.verdict = {.id = *ChoiceId::Parse("scripted/a")}, .subject = {}};
  choice.verdict.repetitions = repetitions;
  choice.call_ns = call_ns;
  choice.verdict.skews_ns = {7};
  return choice;
}

TEST(SampleRepetitionsTest, WarmCallsFillASampleUnlessOneCallIsLongEnoughAlone) {
  const SampleRepetitions on_gpu(kSampleNs, 1, MemoryKind::kCuda);
  EXPECT_EQ(on_gpu.WarmCalls(1), 16) << "no more than these";
  EXPECT_EQ(on_gpu.WarmCalls(100'000), 5);
  EXPECT_EQ(on_gpu.WarmCalls(kSampleNs * 2), 1);
  EXPECT_EQ(on_gpu.WarmCalls(kSampleNs * 16), 0);
  EXPECT_EQ(OnHost().WarmCalls(1), 16);
  EXPECT_EQ(OnHost().WarmCalls(20'000), 6) << "as many as a short sample";
  EXPECT_EQ(OnHost().WarmCalls(100'000), 1);
  EXPECT_EQ(OnHost().WarmCalls(kSampleNs * 2), 1);
  EXPECT_EQ(OnHost().WarmCalls(kSampleNs * 16), 0);
}

TEST(SampleRepetitionsTest, AShortSampleHasAQuarterOfTheCallsAndTwoOfShortOnesAtLeast) {
  EXPECT_EQ(OnHost().ShortCallsFor(1), 250);
  EXPECT_EQ(OnHost().ShortCallsFor(20'000), 6);
  EXPECT_EQ(OnHost().ShortCallsFor(100'000), 1);
  EXPECT_EQ(OnHost().ShortCallsFor(240'000), 1);
  const SampleRepetitions of_short(100'000, 1, MemoryKind::kHost);
  EXPECT_EQ(of_short.ShortCallsFor(40'000), 2);
  EXPECT_EQ(of_short.ShortCallsFor(50'000), 1);
  EXPECT_EQ(OnHost().ShortCallsFor(1'300'000), 1) << "a sample has one as well";
}

TEST(SampleRepetitionsTest, AShortSampleOfOneCallBeginsWithAnUntimedOne) {
  EXPECT_TRUE(OnHost().NeedsUntimedCall(1, 100'000));
  EXPECT_FALSE(OnHost().NeedsUntimedCall(2, 20'000)) << "it has one by itself";
  EXPECT_FALSE(OnHost().NeedsUntimedCall(1, 1'300'000)) << "a full sample has one call";
  const SampleRepetitions on_gpu(kSampleNs, 1, MemoryKind::kCuda);
  EXPECT_FALSE(on_gpu.NeedsUntimedCall(1, 100'000)) << "the device lines the ranks up";
}

TEST(SampleRepetitionsTest, SamplesAreLengthenedByTheTimesOfTheShortOnes) {
  std::vector<RacingChoice> choices;
  choices.push_back(Calibrated(0, 100'000));
  choices.push_back(Calibrated(0, 1'300'000));
  choices.push_back(Calibrated(0, 100'000));
  choices[2].has_failed = true;
  OnHost().Shorten(choices);
  EXPECT_EQ(choices[0].verdict.repetitions, 1);
  EXPECT_TRUE(choices[0].adds_untimed_call);
  EXPECT_EQ(choices[1].verdict.repetitions, 1);
  EXPECT_FALSE(choices[1].adds_untimed_call);
  EXPECT_EQ(choices[2].verdict.repetitions, 0) << "it has failed";
  Race race(3, SIZE_MAX, RaceRules{.cuts = {}, .qualifying_rounds = 2});
  race.Disqualify(2);
  race.AddRound({50'000, 1'300'000});
  EXPECT_TRUE(OnHost().Lengthen(choices, race));
  EXPECT_EQ(choices[0].verdict.repetitions, 10);
  EXPECT_FALSE(choices[0].adds_untimed_call);
  EXPECT_EQ(choices[0].call_ns, 50'000);
  EXPECT_TRUE(choices[0].verdict.skews_ns.empty()) << "those of the short samples";
  EXPECT_EQ(choices[1].verdict.repetitions, 1);
  EXPECT_FALSE(OnHost().Lengthen(choices, race)) << "nothing is longer";
  choices[0].verdict.repetitions = 6;
  EXPECT_FALSE(OnHost().Lengthen(choices, race)) << "not twice as long";
  EXPECT_EQ(choices[0].verdict.repetitions, 6);
  Race unmeasured(3, SIZE_MAX, RaceRules{});
  choices[0].verdict.repetitions = 2;
  EXPECT_TRUE(OnHost().Lengthen(choices, unmeasured));
  EXPECT_EQ(choices[0].verdict.repetitions, 10) << "by its calibration";
}

// A short sample of few calls is far off, too, but gets no more than a short one has.
TEST(SampleRepetitionsTest, AShortSampleIsRemeasuredWithTheCallsOfAShortOne) {
  std::vector<RacingChoice> choices;
  choices.push_back(Calibrated(2, 240'000));
  Race race(1, SIZE_MAX, RaceRules{.qualifying_rounds = 8});
  std::vector<int64_t> times_ns = {10'000};
  OnHost().RemeasureUndersampled({0}, times_ns, choices, race);
  EXPECT_EQ(choices[0].verdict.repetitions, 12);
}

TEST(SampleRepetitionsTest, ASampleMuchFasterThanBelievedIsMeasuredAnewWithMoreCalls) {
  std::vector<RacingChoice> choices;
  choices.push_back(Calibrated(2, 240'000));
  choices.push_back(Calibrated(2, 240'000));
  Race race(2, SIZE_MAX, RaceRules{});
  race.AddRound({20'000, 240'000});
  std::vector<int64_t> times_ns = {20'000, 240'000};
  OnHost().RemeasureUndersampled({0, 1}, times_ns, choices, race);
  EXPECT_EQ(choices[0].verdict.repetitions, 25);
  EXPECT_EQ(choices[0].call_ns, 20'000);
  EXPECT_TRUE(choices[0].verdict.skews_ns.empty());
  EXPECT_TRUE(race.samples_ns(0).empty());
  EXPECT_EQ(times_ns, (std::vector<int64_t>{0, 240'000}));
  EXPECT_EQ(choices[1].verdict.repetitions, 2) << "as fast as believed";
  EXPECT_EQ(race.samples_ns(1).size(), 1u);
}

TEST(SampleRepetitionsTest, ManyRepetitionsALittleErrorOrManySamplesStay) {
  struct Case {
    int32_t repetitions;
    int64_t believed_ns;
    int64_t time_ns;
    int rounds;
  };
  for (const Case& each : {Case{16, 30'000, 1'000, 1}, Case{2, 240'000, 170'000, 1},
                           Case{2, 240'000, 20'000, 3}, Case{2, 240'000, 0, 1}}) {
    std::vector<RacingChoice> choices;
    choices.push_back(Calibrated(each.repetitions, each.believed_ns));
    Race race(1, SIZE_MAX, RaceRules{});
    for (int round = 0; round < each.rounds; ++round) race.AddRound({each.believed_ns});
    std::vector<int64_t> times_ns = {each.time_ns};
    OnHost().RemeasureUndersampled({0}, times_ns, choices, race);
    EXPECT_EQ(choices[0].verdict.repetitions, each.repetitions) << each.time_ns;
    EXPECT_EQ(times_ns[0], each.time_ns);
    EXPECT_EQ(race.samples_ns(0).size(), static_cast<size_t>(each.rounds));
  }
}

TEST(CalibrationTest, RepetitionsFollowFromCallsInARow) {
  CellScript script;
  script.choices = {ChoiceOfCost("slow_at_first", 20'000), ChoiceOfCost("long", kSampleNs * 20)};
  script.choices[0].first_calls = 1;
  script.choices[0].first_extra_ns = 300'000;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    const SampleRepetitions repetitions = OnHost();
    Calibration calibration(repetitions, cell.steps, cell.runs, cell.removal);
    cell.choices[0].check_ns = 20'000;
    ASSERT_TRUE(calibration.Run(cell.choices[0]).has_value());
    EXPECT_EQ(cell.choices[0].call_ns, 320'000) << "the first calls of the plan";
    ASSERT_TRUE(calibration.Run(cell.choices[0]).has_value());
    EXPECT_EQ(cell.choices[0].call_ns, 20'000);
    EXPECT_EQ(cell.choices[0].verdict.repetitions, 25);
    cell.choices[1].check_ns = kSampleNs * 20;
    ASSERT_TRUE(calibration.Run(cell.choices[1]).has_value());
    EXPECT_EQ(cell.choices[1].call_ns, 0) << "its check has timed it";
    EXPECT_EQ(cell.choices[1].verdict.repetitions, 1);
  });
}

TEST(CalibrationTest, AChoiceThatFailsIsRemovedOnAllRanks) {
  CellScript script;
  script.choices = {ChoiceOfCost("failing", 20'000)};
  script.choices[0].launch_fails_on_rank = 0;
  RunOnPreparedRanks(script, [](PreparedCellOnRank& cell) {
    const SampleRepetitions repetitions = OnHost();
    Calibration calibration(repetitions, cell.steps, cell.runs, cell.removal);
    cell.choices[0].check_ns = 20'000;
    ASSERT_TRUE(calibration.Run(cell.choices[0]).has_value());
    EXPECT_TRUE(cell.choices[0].has_failed);
    EXPECT_EQ(cell.choices[0].verdict.outcome, Outcome::kLaunchFailed);
  });
}

}  // namespace
}  // namespace cotune
