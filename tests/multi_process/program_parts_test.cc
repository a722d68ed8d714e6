// Tunes of programs whose parts misbehave on one rank: the check of values finds it, and all ranks
// agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fmt/format.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 120 * kSecondNs;
constexpr int kRanks = 3;

// A tune of one program, by two choices of the fake backend whose parts are as `parts` says.
class ProgramParts : public ::testing::Test {
 protected:
  void Tune(const std::string& parts) {
    JobScript script = DefaultScript(folder_);
    script.world_size = kRanks;
    script.collectives = {};
    script.calls = 0;
    script.programs = {
        "%0 = input f32 [R, 8]\n"
        "%1 = input f32 [1, 8] replicated\n"
        "%2 = all_reduce sum %0\n"
        "%3 = add %2, %1\n"
        "%4 = relu %3\n"
        "return %4\n"};
    script.fake_script = "choice one default cost_us=100000; choice two; " + parts;
    StartJob(ranks_, script);
    ASSERT_TRUE(ranks_.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks_.Transcript();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      for (const char* kind : {"verdict ", "winner ", "warning ", "outcome ", "table "}) {
        EXPECT_EQ(ranks_.LinesOf(rank, kind), ranks_.LinesOf(0, kind)) << ranks_.Transcript();
      }
    }
  }

  // No choice is left, and every rank says why in the same words, in which this text is. The tune
  // ends well all the same, with no row for the program.
  void ExpectNoChoiceLeft(const std::string& reason) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      EXPECT_EQ(ranks_.ExitOf(rank), 0) << ranks_.Transcript();
      EXPECT_THAT(ranks_.LinesOf(rank, "winner "), SizeIs(0));
      EXPECT_THAT(ranks_.LinesOf(rank, "warning no choice could be timed"),
                  AllOf(SizeIs(1), Each(HasSubstr(reason))))
          << ranks_.Transcript();
    }
  }

  const PrivateFolder folder_;
  RankProcesses ranks_;
};

TEST_F(ProgramParts, ThatAreRightLeaveTheRaceToTheCollectives) {
  Tune("parts");
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks_.ExitOf(rank), 0) << ranks_.Transcript();
    EXPECT_THAT(ranks_.LinesOf(rank, "winner "), AllOf(SizeIs(1), Each(HasSubstr("fake/two"))))
        << ranks_.Transcript();
  }
}

// Both choices run the same parts.
TEST_F(ProgramParts, ThatAreWrongOnOneRankAreFoundByItsCheck) {
  Tune("parts wrong_on=1");
  ExpectNoChoiceLeft("fake/one: wrong_result, 1 wrong element, rank 1: wrong values");
  ExpectNoChoiceLeft("fake/two: wrong_result, 1 wrong element, rank 1: wrong values");
}

TEST_F(ProgramParts, ThatCannotBePreparedOnOneRankLeaveAllRanksAgreed) {
  Tune("parts prepare_fails_on=1");
  ExpectNoChoiceLeft("fake/one: precompile_failed, rank 1: scripted: part_prepare fails");
}

TEST_F(ProgramParts, ThatAreRefusedOnOneRankLeaveAllRanksAgreed) {
  Tune("parts prepare_refused_on=1");
  ExpectNoChoiceLeft("fake/one: precompile_failed, rank 1: scripted: part_prepare refuses");
}

TEST_F(ProgramParts, ThatFailInALaunchOnOneRankLeaveAllRanksAgreed) {
  Tune("parts launch_fails_on=1");
  ExpectNoChoiceLeft("fake/one: launch_failed, rank 1: scripted: the launch of a part fails");
}

// Nothing is raced at all.
TEST_F(ProgramParts, ThatNoBackendHasRefuseTheProgram) {
  Tune("");
  ExpectNoChoiceLeft(
      "no backend offers a choice (every choice: no backend that is loaded runs the local "
      "operations of programs on this memory)");
}

}  // namespace
}  // namespace cotune
