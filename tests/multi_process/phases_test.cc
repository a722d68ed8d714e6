// The four phases of the original design, with real processes: one collective on two ranks, three
// on two, five on four, and a choice that hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/ranks/rank_exchange.h"
#include "fmt/format.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 120 * kSecondNs;

std::vector<size_t> Numbers(int count) {
  std::vector<size_t> numbers(count);
  for (int i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

// Every rank ended well, has the same table and winners, and got right values in every call.
void ExpectTunedAlike(RankProcesses& ranks, int world_size, size_t cells, size_t calls) {
  ASSERT_TRUE(ranks.WaitForEnd(Numbers(world_size), kPatienceNs)) << ranks.Transcript();
  for (int rank = 0; rank < world_size; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "outcome "),
                Contains(fmt::format("committed=true measured={} known=0 late=", cells)));
    EXPECT_THAT(ranks.LinesOf(rank, "winner "), SizeIs(cells));
    EXPECT_EQ(ranks.LinesOf(rank, "winner "), ranks.LinesOf(0, "winner "));
    EXPECT_THAT(ranks.LinesOf(rank, "table "), SizeIs(1));
    EXPECT_EQ(ranks.LinesOf(rank, "table "), ranks.LinesOf(0, "table "));
    EXPECT_THAT(ranks.LinesOf(rank, "calls right "), Contains(fmt::format("{}", calls)));
  }
}

// The choices of a backend that were timed at all, over all cells.
std::set<std::string> Timed(const RankProcesses& ranks) {
  std::set<std::string> timed;
  for (const std::string& verdict : ranks.LinesOf(0, "verdict ")) {
    const size_t first = verdict.find(' ') + 1;
    const size_t second = verdict.find(' ', first);
    const std::string outcome =
        verdict.substr(second + 1, verdict.find(' ', second + 1) - second - 1);
    if (outcome == "timed" || outcome == "outpaced") {
      timed.insert(verdict.substr(first, second - first));
    }
  }
  return timed;
}

TEST(Phases, OneCollectiveOnTwoRanks) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, DefaultScript(folder));
  ExpectTunedAlike(ranks, 2, 1, 2);
  EXPECT_GE(Timed(ranks).size(), 2u) << "there was nothing to choose between";
}

TEST(Phases, ThreeCollectivesOnTwoRanks) {
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.collectives = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter};
  script.sizes_bytes = {256, 65536};
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, 2, 6, 12);
}

TEST(Phases, FiveCollectivesOnFourRanksAsOneGraph) {
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.world_size = 4;
  script.collectives.assign(AllCollectives().begin(), AllCollectives().end());
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, 4, 5, 10);
}

TEST(Phases, FiveCollectivesOnFourRanksOneByOne) {
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.world_size = 4;
  script.collectives.assign(AllCollectives().begin(), AllCollectives().end());
  script.settings.enable_collective_multitemplate = false;
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, 4, 5, 10);
}

// The fast choice is spoiled on one rank: every rank drops it and takes the slow one.
class SpoiledChoice : public ::testing::TestWithParam<int> {
 protected:
  // `spoiling`: words of the fake backend's script.
  void TuneWith(const std::string& spoiling) {
    JobScript script = DefaultScript(folder_);
    script.world_size = 3;
    script.settings.collective_autotune_timeout_ns = 3 * kSecondNs;
    script.fake_script = fmt::format("choice slow default cost_us=20000\nchoice fast {}_on={}",
                                     spoiling, GetParam());
    StartJob(ranks_, script);
    ExpectTunedAlike(ranks_, script.world_size, 1, 2);
    EXPECT_EQ(Timed(ranks_), std::set<std::string>{"fake/slow"}) << ranks_.Transcript();
  }

  void ExpectVerdict(const std::string& outcome) {
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(ranks_.LinesOf(rank, "verdict "),
                  Contains(AllOf(HasSubstr(" fake/fast " + outcome),
                                 HasSubstr(fmt::format("rank {}", GetParam())))));
    }
  }

  const PrivateFolder folder_;
  RankProcesses ranks_;
};

TEST_P(SpoiledChoice, ThatHangsIsDroppedOnAllRanks) {
  TuneWith("hangs");
  // The ranks that wait for it come to their deadline, and the first to do so frees the others.
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks_.LinesOf(rank, "verdict "),
                Contains(AllOf(HasSubstr(" fake/fast "), HasSubstr("at the deadline"),
                               HasSubstr(fmt::format("rank {} had not sent", GetParam())))));
  }
}

TEST_P(SpoiledChoice, ThatIsWrongIsDroppedOnAllRanks) {
  TuneWith("wrong");
  ExpectVerdict("wrong_result");
}

TEST_P(SpoiledChoice, ThatWritesTooFarIsDroppedOnAllRanks) {
  TuneWith("overruns");
  ExpectVerdict("wrong_result");
}

TEST_P(SpoiledChoice, ThatCannotBeLaunchedIsDroppedOnAllRanks) {
  TuneWith("launch_fails");
  ExpectVerdict("launch_failed");
}

TEST_P(SpoiledChoice, ThatCannotBePreparedIsDroppedOnAllRanks) {
  TuneWith("prepare_fails");
  ExpectVerdict("precompile_failed");
}

// The control: nothing is wrong with it, so it wins. A busy machine adds some 20 ms to a call now
// and then, and one such call among eight lets the intervals of two choices overlap.
TEST(Choice, ThatIsFasterWins) {
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.world_size = 3;
  script.fake_script = "choice slow default cost_us=100000\nchoice fast";
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, script.world_size, 1, 2);
  EXPECT_THAT(ranks.LinesOf(2, "winner "), Contains(HasSubstr(" fake/fast")));
}

// A failed launch makes the group anew in the middle of the tune: the plans of calls that were made
// before it belong to the group that is gone.
TEST(Choice, ThatFailsDoesNotHarmCallsBeforeAndAfter) {
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.world_size = 3;
  script.calls_first = true;
  script.fake_script = "choice usual default\nchoice bad launch_fails_on=1";
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, 3, 1, 2);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks.LinesOf(rank, "calls right "), ::testing::ElementsAre("2", "2"));
    EXPECT_THAT(ranks.LinesOf(rank, "winner "), Contains(HasSubstr(" fake/usual")))
        << ranks.Transcript();
  }
}

// Why they failed is more than one step of the control channel carries.
TEST(Choices, ThatFailByTheThousandAreDroppedOnAllRanks) {
  constexpr int kFailing = 1800;  // as many as the script has place for, which is a setting
  constexpr std::string_view kStart = "rank 1: ";
  const PrivateFolder folder;
  JobScript script = DefaultScript(folder);
  script.fake_script = "choice usual default";
  for (int i = 0; i < kFailing; ++i) {
    script.fake_script += fmt::format(";choice c{} prepare_fails_on=1", i);
  }
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectTunedAlike(ranks, 2, 1, 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    const std::vector<std::string> verdicts = ranks.LinesOf(rank, "verdict ");
    EXPECT_THAT(verdicts, SizeIs(1 + kFailing));
    size_t reason_bytes = 0;
    for (const std::string& verdict : verdicts) {
      const size_t at = verdict.find(kStart);
      if (at != std::string::npos) reason_bytes += verdict.size() - at - kStart.size();
    }
    EXPECT_GT(reason_bytes, RankExchange::kRecordBytesMax) << "the test is about longer ones";
    for (int i = 0; i < kFailing; i += 311) {
      EXPECT_THAT(verdicts, Contains(AllOf(HasSubstr(fmt::format(" fake/c{} precompile_failed", i)),
                                           HasSubstr(std::string(kStart)))));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SpoiledChoice, ::testing::Values(0, 2));

}  // namespace
}  // namespace cotune
