// One rank is killed, stopped, or comes late at each stage of a tune and of a call: every other
// process ends within twice the deadline, names the rank, and exits with the documented code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <tuple>

#include "core/events/stage_observer.h"
#include "fmt/format.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kDeadlineNs = 5 * kSecondNs;
constexpr int kWorldSize = 3;

std::vector<Stage> Stages() {
  std::vector<Stage> stages;
  for (int i = 0; i <= static_cast<int>(Stage::kDispatch); ++i) {
    stages.push_back(static_cast<Stage>(i));
  }
  return stages;
}

std::string CaseName(Stage stage, size_t victim) {
  return fmt::format("{}_of_rank_{}", Name(stage), victim);
}

std::vector<size_t> Others(size_t victim) {
  std::vector<size_t> others;
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    if (rank != victim) others.push_back(rank);
  }
  return others;
}

JobScript FaultyScript(const PrivateFolder& folder, const std::string& fault) {
  JobScript script = DefaultScript(folder);
  script.world_size = kWorldSize;
  script.database_path = folder.path() + "/tuned.db";
  script.fault = fault;
  SetDeadlines(script, kDeadlineNs);
  return script;
}

// The others end in time with one error that blames the victim and nobody else.
void ExpectOthersBlame(RankProcesses& ranks, size_t victim) {
  ASSERT_TRUE(ranks.WaitForEnd(Others(victim), 2 * kDeadlineNs)) << ranks.Transcript();
  for (size_t rank : Others(victim)) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 5) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(AllOf(HasSubstr(fmt::format("ranks={} ", victim)),
                                            HasSubstr(fmt::format("rank {}", victim))))))
        << ranks.Transcript();
  }
}

class Lost : public ::testing::TestWithParam<std::tuple<Stage, size_t>> {};

TEST_P(Lost, ByAKill) {
  const auto [stage, victim] = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, FaultyScript(folder, fmt::format("{}@{}:kill", Name(stage), victim)));
  ASSERT_NO_FATAL_FAILURE(ExpectOthersBlame(ranks, victim));
  ASSERT_TRUE(ranks.WaitForEnd({victim}, 2 * kDeadlineNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(victim), -SIGKILL) << "the fault did not happen";
}

TEST_P(Lost, ByAStop) {
  const auto [stage, victim] = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, FaultyScript(folder, fmt::format("{}@{}:stop", Name(stage), victim)));
  ASSERT_NO_FATAL_FAILURE(ExpectOthersBlame(ranks, victim));
  EXPECT_THAT(ranks.LinesOf(victim, "error "), SizeIs(0)) << "the fault did not happen";
}

INSTANTIATE_TEST_SUITE_P(AtEachStage, Lost,
                         ::testing::Combine(::testing::ValuesIn(Stages()),
                                            ::testing::Values<size_t>(0, 1)),
                         [](const auto& info) {
                           return CaseName(std::get<0>(info.param), std::get<1>(info.param));
                         });

// Alive by its heartbeats, but not there: the others wait until the deadline of what they wait in.
class Late : public ::testing::TestWithParam<std::tuple<Stage, size_t>> {};

std::string DelayFault(Stage stage, size_t victim, double deadlines) {
  return fmt::format("{}@{}:delay={}", Name(stage), victim,
                     static_cast<int64_t>(deadlines * kDeadlineNs / 1e6));
}

TEST_P(Late, BeyondTheDeadline) {
  const auto [stage, victim] = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, FaultyScript(folder, DelayFault(stage, victim, 1.8)));
  ASSERT_NO_FATAL_FAILURE(ExpectOthersBlame(ranks, victim));
  // When it comes at last it is told the same.
  ASSERT_TRUE(ranks.WaitForEnd({victim}, 2 * kDeadlineNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(victim), 5) << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(victim, "error "), SizeIs(1));
}

// At the pre-sync and at a check a late rank is no reason to end: see below.
std::vector<Stage> StagesThatEnd() {
  std::vector<Stage> stages = Stages();
  std::erase(stages, Stage::kPreSync);
  std::erase(stages, Stage::kCheck);
  return stages;
}

INSTANTIATE_TEST_SUITE_P(AtEachStage, Late,
                         ::testing::Combine(::testing::ValuesIn(StagesThatEnd()),
                                            ::testing::Values<size_t>(1)),
                         [](const auto& info) {
                           return CaseName(std::get<0>(info.param), std::get<1>(info.param));
                         });

// A missed window: all ranks, the late one too, run the default table, and one rank warns once.
class MissedWindow : public ::testing::TestWithParam<size_t> {};

TEST_P(MissedWindow, GivesAllRanksTheDefaultTable) {
  const size_t victim = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, FaultyScript(folder, DelayFault(Stage::kPreSync, victim, 0.75)));
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, 2 * kDeadlineNs)) << ranks.Transcript();
  size_t warnings = 0;
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "outcome "),
                ElementsAre(fmt::format("committed=false measured=0 known=0 late={}", victim)));
    EXPECT_EQ(ranks.LinesOf(rank, "table "), ranks.LinesOf(0, "table "));
    EXPECT_THAT(ranks.LinesOf(rank, "calls right "), ElementsAre("2"));
    warnings += ranks.LinesOf(rank, fmt::format("warning rank {} missed", victim)).size();
  }
  EXPECT_EQ(warnings, 1u) << ranks.Transcript();
}

INSTANTIATE_TEST_SUITE_P(Ranks, MissedWindow, ::testing::Values<size_t>(0, 2));

// A rank may be late because its user has asked all of them to stop.
TEST(MissedWindowAfterAnInterrupt, EndsTheTuneAsItsUserAsked) {
  constexpr size_t kVictim = 1;
  const PrivateFolder folder;
  JobScript script = FaultyScript(folder, DelayFault(Stage::kPreSync, kVictim, 0.75));
  script.interrupt_at_stage = Stage::kPreSync;
  RankProcesses ranks;
  StartJob(ranks, script);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, 2 * kDeadlineNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 130) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "), ElementsAre(HasSubstr("interrupted")));
    EXPECT_THAT(ranks.LinesOf(rank, "outcome "), SizeIs(0));
  }
}

// A rank that comes late to a launch costs the choice that was launched, not the tune.
TEST(LateToACheck, DropsTheChoiceOnAllRanks) {
  constexpr size_t kVictim = 1;
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, FaultyScript(folder, DelayFault(Stage::kCheck, kVictim, 1.5)));
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, 3 * kDeadlineNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "outcome "),
                ElementsAre("committed=true measured=1 known=0 late="));
    EXPECT_THAT(ranks.LinesOf(rank, "verdict "),
                Contains(AllOf(HasSubstr(" deadline "), HasSubstr("rank 1"))))
        << ranks.Transcript();
    EXPECT_EQ(ranks.LinesOf(rank, "table "), ranks.LinesOf(0, "table "));
    EXPECT_THAT(ranks.LinesOf(rank, "calls right "), ElementsAre("2"));
  }
}

TEST(Fault, ThatCannotBeReadIsAUsageError) {
  const PrivateFolder folder;
  RankProcesses ranks;
  JobScript script = FaultyScript(folder, "benchmark@1:explode");
  script.world_size = 1;
  StartJob(ranks, script);
  ASSERT_TRUE(ranks.WaitForEnd({0}, 2 * kDeadlineNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(0), 2);
  EXPECT_THAT(ranks.LinesOf(0, "error "), ElementsAre(HasSubstr("'explode'")));
}

}  // namespace
}  // namespace cotune
