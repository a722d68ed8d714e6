// A rank that gives up its job by cotune_group_abort, from a thread of its own: real processes,
// only cotune.h, the shared library and plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CApiAbort : public CApiRanks {
 protected:
  // "WHAT 9 rank R gave up the job: the user has had enough".
  static auto GaveUp(int rank) {
    return AllOf(StartsWith("9 "),
                 HasSubstr(fmt::format("rank {} gave up the job: the user has had enough", rank)));
  }
};

// Gives up when the test says a word, while the caller's thread is in a call.
std::thread GiveUpAtAWord(TestLink& link, cotune_group* group) {
  return std::thread([&link, group] {
    link.AwaitWord();
    const cotune_result result = cotune_group_abort(group, "the user has had enough");
    if (result != COTUNE_SUCCESS) link.Report(fmt::format("abort gave {}", result));
  });
}

// Rank 3 never comes, so that the others wait in calls that may take ten minutes: ranks 0 and 2 in
// the group of all, rank 1 in a subgroup. A subgroup without the rank that gives up goes on.
TEST_F(CApiAbort, EndsEveryWaitOnEveryRank) {
  RankProcesses ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 4, link);
      if (group == nullptr) return 1;
      cotune_group* const with =
          rank == 1 || rank == 2 ? Split(group, "with", {1, 2}, link) : nullptr;
      cotune_group* const without =
          rank == 0 || rank == 3 ? Split(group, "without", {0, 3}, link) : nullptr;
      Say(link, "before", group, Reduce(group));
      std::thread gives_up;
      if (rank == 2) gives_up = GiveUpAtAWord(link, group);
      link.Report("ready");
      if (rank == 0 || rank == 2) Say(link, "waited", group, Reduce(group));
      if (rank == 1) Say(link, "waited", with, Reduce(with));
      while (rank == 3 && cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      if (gives_up.joinable()) gives_up.join();
      Say(link, "later", group, Reduce(group));
      Say(link, "later", group, cotune_group_check(group));
      if (with != nullptr) Say(link, "later", with, cotune_group_check(with));
      if (without != nullptr) Say(link, "without", without, Reduce(without));
      cotune_group_destroy(with);
      cotune_group_destroy(without);
      cotune_group_destroy(group);
      return 0;
    });
  }
  for (size_t rank : {0, 1, 2, 3}) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "ready", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Say(2);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  for (size_t rank : {0, 1, 2, 3}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "before "), ElementsAre("0 "));
    if (rank != 3) {
      EXPECT_THAT(ranks.LinesOf(rank, "waited "), ElementsAre(GaveUp(2)));
    }
    const size_t later = rank == 1 || rank == 2 ? 3 : 2;
    EXPECT_THAT(ranks.LinesOf(rank, "later "), AllOf(SizeIs(later), Each(GaveUp(2))));
  }
  for (size_t rank : {0, 3}) EXPECT_THAT(ranks.LinesOf(rank, "without "), ElementsAre("0 "));
}

// The wait of a tune is in the control channel, not in a backend.
TEST_F(CApiAbort, EndsATuneThatWaitsForARank) {
  setenv("COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT", "600s", 1);
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      std::thread gives_up;
      if (rank == 1) gives_up = GiveUpAtAWord(link, group);
      link.Report("ready");
      if (rank != 2) Say(link, "tuned", group, Tune(group, 256));
      while (rank == 2 && cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      if (gives_up.joinable()) gives_up.join();
      Say(link, "later", group, Tune(group, 256));
      cotune_group_destroy(group);
      return 0;
    });
  }
  for (size_t rank : {0, 1, 2}) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "ready", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Say(1);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  unsetenv("COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT");
  for (size_t rank : {0, 1, 2}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    if (rank != 2) {
      EXPECT_THAT(ranks.LinesOf(rank, "tuned "), ElementsAre(GaveUp(1)));
    }
    EXPECT_THAT(ranks.LinesOf(rank, "later "), ElementsAre(GaveUp(1)));
  }
}

// Rank 0 waits for nobody that it could see leaving, as a GPU does.
TEST_F(CApiAbort, EndsAWaitThatOnlyABackendsAbortEnds) {
  SetFakeScript("choice stuck default hangs_on=0");
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link, fake_plugins_);
      if (group == nullptr) return 1;
      std::thread gives_up;
      if (rank == 0) gives_up = GiveUpAtAWord(link, group);
      link.Report("ready");
      if (rank == 0) Say(link, "waited", group, Reduce(group));
      while (rank == 1 && cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      if (gives_up.joinable()) gives_up.join();
      Say(link, "later", group, Reduce(group));
      cotune_group_destroy(group);
      return 0;
    });
  }
  for (size_t rank : {0, 1}) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "ready", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Say(0);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_THAT(ranks.LinesOf(0, "waited "), ElementsAre(GaveUp(0)));
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "later "), ElementsAre(GaveUp(0)));
  }
}

// A death has ended the job's control channel before; groups without the dead rank still run.
TEST_F(CApiAbort, EndsWaitsAfterADeathToo) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      cotune_group* const pair = rank < 2 ? Split(group, "pair", {0, 1}, link) : nullptr;
      link.Report("created");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      while (cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      Say(link, "first", group, cotune_group_check(group));
      std::thread gives_up;
      if (rank == 1) gives_up = GiveUpAtAWord(link, pair);
      link.Report("ready");
      if (rank == 0) Say(link, "waited", pair, Reduce(pair));
      if (gives_up.joinable()) gives_up.join();
      Say(link, "later", pair, cotune_group_check(pair));
      Say(link, "first", group, cotune_group_check(group));
      cotune_group_destroy(pair);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 2}, "created", kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1}) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "ready", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Say(1);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_THAT(ranks.LinesOf(0, "waited "), ElementsAre(GaveUp(1)));
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "later "), ElementsAre(GaveUp(1)));
    // The first error of a group stays.
    EXPECT_THAT(ranks.LinesOf(rank, "first "),
                AllOf(SizeIs(2), Each(AllOf(StartsWith("5 "), HasSubstr("rank 2 died")))));
  }
}

TEST_F(CApiAbort, OfAGroupOfOneAndWithoutAReason) {
  EXPECT_EQ(cotune_group_abort(nullptr, "why"), COTUNE_ERROR_USAGE);
  RankProcesses ranks;
  ranks.Start([this](TestLink& link) {
    cotune_group* const group = Create(0, 1, link);
    if (group == nullptr) return 1;
    const pid_t child = fork();
    if (child == 0) _exit(cotune_group_abort(group, "a child") == COTUNE_ERROR_USAGE ? 0 : 1);
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) link.Report("the child's abort worked");
    Say(link, "before", group, Reduce(group));
    // The second one changes nothing.
    for (const char* reason : {static_cast<const char*>(nullptr), "again"}) {
      if (cotune_group_abort(group, reason) != COTUNE_SUCCESS) link.Report("abort failed");
    }
    Say(link, "later", group, Reduce(group));
    cotune_group_destroy(group);
    return 0;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(0), 0);
  EXPECT_THAT(ranks.LinesOf(0, "abort"), SizeIs(0));
  EXPECT_THAT(ranks.LinesOf(0, "the child"), SizeIs(0));
  EXPECT_THAT(ranks.LinesOf(0, "before "), ElementsAre("0 "));
  EXPECT_THAT(ranks.LinesOf(0, "later "),
              ElementsAre(AllOf(StartsWith("9 "), HasSubstr("rank 0 gave up the job"),
                                Not(HasSubstr("again")))));
}

}  // namespace
}  // namespace cotune
