// Tunes of a program that a plugin may run as one step, a region: it wins where it is faster, and a
// region that misbehaves on one rank is dropped on all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/testing/twin_recipes.h"
#include "fmt/format.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 120 * kSecondNs;
constexpr int kRanks = 3;
// The choice whose step runs the collective and the operation that reads its value.
constexpr char kFused[] = "fake/two?fuse=1";

// The time of the first choice: the short one if it is to win, the long one if a region of 2 ms is
// to win. A machine may stall each process for tens of milliseconds, and the default stays unless
// it is much slower.
constexpr int64_t kFastUs = 30'000;
constexpr int64_t kSlowUs = 150'000;

// A tune of one program by two choices of the fake backend. The first runs collectives alone; the
// second takes three times as long, and runs regions by the words of the test.
class ProgramRegions : public ::testing::Test {
 protected:
  void Tune(int64_t first_us, const std::string& words,
            NumericsRule numerics = NumericsRule::kAny) {
    JobScript script = DefaultScript(folder_);
    script.settings.numerics = numerics;
    script.world_size = kRanks;
    script.collectives = {};
    script.calls = 0;
    script.settings.collective_autotune_timeout_ns = (first_us == kFastUs ? 5 : 60) * kSecondNs;
    // Values of silu have a bound, within which ranks may differ.
    script.programs = {
        "%0 = input f32 [R, 8]\n"
        "%1 = all_reduce sum %0\n"
        "%2 = silu %1\n"
        "return %2\n"};
    script.recipes = std::make_shared<TwinRecipes>(/*with_regions=*/true);
    script.fake_script = fmt::format(
        "choice one default cost_us={} numerics=rank_order_f32; "
        "choice two cost_us={} numerics=rank_order_f32 fuses=4 {}; parts",
        first_us, 3 * first_us, words);
    Run(script);
  }

  // Starts the ranks; all of them end well, in the same way.
  void Run(const JobScript& script) {
    StartJob(ranks_, script);
    ASSERT_TRUE(ranks_.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks_.Transcript();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      EXPECT_EQ(ranks_.ExitOf(rank), 0) << ranks_.Transcript();
      for (const char* kind : {"verdict ", "refusal ", "winner ", "outcome ", "table "}) {
        EXPECT_EQ(ranks_.LinesOf(rank, kind), ranks_.LinesOf(0, kind)) << ranks_.Transcript();
      }
    }
  }

  // Tunes a program whose output overwrites an input of the region, and calls it.
  void TuneAndCall(NumericsRule numerics) {
    JobScript script = DefaultScript(folder_);
    script.world_size = kRanks;
    script.collectives = {};
    script.calls = 0;
    script.program_calls = 2;
    script.settings.numerics = numerics;
    script.programs = {
        "%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%s = all_reduce sum %x\n"
        "%t = add %s, %r\nreturn %t into %r, %s\n"};
    script.settings.collective_autotune_timeout_ns = 60 * kSecondNs;
    script.fake_script = fmt::format(
        "choice one default cost_us={} numerics=rank_order_f32; "
        "choice two cost_us={} numerics=rank_order_f32 fuses=1 fuse_cost_us=2000; parts",
        kSlowUs, 3 * kSlowUs);
    Run(script);
    ExpectWinner(kFused);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(ranks_.LinesOf(rank, "program at "),
                  ElementsAre("32 rows by fake/two?fuse=1", "32 rows by fake/two?fuse=1",
                              "48 rows by fake/two?fuse=1", "48 rows by fake/two?fuse=1"))
          << ranks_.Transcript();
    }
  }

  void ExpectWinner(const std::string& choice) {
    EXPECT_THAT(ranks_.LinesOf(0, "winner "),
                AllOf(SizeIs(1), Each(::testing::EndsWith(" " + choice))))
        << ranks_.Transcript();
  }
  // The region is dropped with this outcome and reason, and the other choices are measured.
  void ExpectDropped(const std::string& outcome, const std::string& reason) {
    ExpectWinner("fake/one");
    EXPECT_THAT(
        ranks_.LinesOf(0, "verdict "),
        Contains(AllOf(HasSubstr(fmt::format(" {} {} ", kFused, outcome)), HasSubstr(reason))))
        << ranks_.Transcript();
  }

  const PrivateFolder folder_;
  RankProcesses ranks_;
};

TEST_F(ProgramRegions, WinWhereTheyAreFaster) {
  Tune(kSlowUs, "fuse_cost_us=2000");
  ExpectWinner(kFused);
}

TEST_F(ProgramRegions, LoseWhereTheyAreSlower) {
  Tune(kFastUs, "fuse_cost_us=90000");
  ExpectWinner("fake/one");
  EXPECT_THAT(ranks_.LinesOf(0, "verdict "), Contains(HasSubstr(fmt::format(" {} ", kFused))))
      << ranks_.Transcript();
}

TEST_F(ProgramRegions, ThatAreWrongOnOneRankAreDroppedOnAll) {
  Tune(kFastUs, "fuse_cost_us=2000 wrong_epilogue_on=1");
  ExpectDropped("wrong_result", "rank 1: wrong values");
}

TEST_F(ProgramRegions, WithOtherBitsOnOneRankAreDroppedOnAll) {
  Tune(kFastUs, "fuse_cost_us=2000 bits_differ_on=1");
  ExpectDropped("wrong_result", "other bits on rank 1 than on ranks 0, 2");
}

TEST_F(ProgramRegions, ThatDoNotCompileAreDropped) {
  Tune(kFastUs, "fuse_cost_us=2000 region_compile_fails");
  ExpectDropped("precompile_failed", "scripted: the region does not compile");
}

TEST_F(ProgramRegions, ThatHangOnOneRankAreDroppedAtTheDeadline) {
  Tune(kFastUs, "fuse_cost_us=2000 region_hangs_on=1");
  ExpectDropped("deadline", "rank 1 had not sent its data at the deadline");
}

TEST_F(ProgramRegions, ThatAreRefusedKeepTheReason) {
  Tune(kFastUs, "region_refused=too_many_rows");
  ExpectWinner("fake/one");
  EXPECT_THAT(ranks_.LinesOf(0, "refusal "),
              Contains(HasSubstr(" fake/two with fuse=1: too many rows")))
      << ranks_.Transcript();
  EXPECT_THAT(ranks_.LinesOf(0, "verdict "), Each(Not(HasSubstr("fuse="))));
}

TEST_F(ProgramRegions, OfNoKindKeepTheReasonOfTheBackend) {
  Tune(kFastUs, "fuse_cost_us=2000; refuse_regions no unit for them");
  ExpectWinner("fake/one");
  EXPECT_THAT(ranks_.LinesOf(0, "refusal "),
              Contains(HasSubstr(" fake with fuse=1: no unit for them")))
      << ranks_.Transcript();
}

// A flag asks the plugin to round every value.
TEST_F(ProgramRegions, WinByTheSameNumericsIfThePluginRoundsEveryValue) {
  Tune(kSlowUs, "fuse_cost_us=2000", NumericsRule::kSame);
  ExpectWinner(kFused);
}

TEST_F(ProgramRegions, AreRefusedByTheSameNumericsIfThePluginKeepsValuesWide) {
  Tune(kFastUs, "fuse_cost_us=2000 keeps_wide", NumericsRule::kSame);
  ExpectWinner("fake/one");
  EXPECT_THAT(ranks_.LinesOf(0, "refusal "),
              Contains(HasSubstr(" fake/two with fuse=1: keeps values wider than their dtype")))
      << ranks_.Transcript();
}

TEST_F(ProgramRegions, MayKeepValuesWideByAnyNumerics) {
  Tune(kSlowUs, "fuse_cost_us=2000 keeps_wide");
  ExpectWinner(kFused);
}

// Calls after the tune run the region by the table, at the tuned size and at another one. Its
// output overwrites an input that the region reads.
TEST_F(ProgramRegions, RunCallsAfterTheTuneAndOverwriteInputs) { TuneAndCall(NumericsRule::kAny); }

TEST_F(ProgramRegions, RunCallsByTheSameNumericsAfterTheTune) { TuneAndCall(NumericsRule::kSame); }

}  // namespace
}  // namespace cotune
