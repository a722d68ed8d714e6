// Groups of the C API when a rank is lost, and when ranks differ: real processes, only
// cotune.h, the shared library and plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

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
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CApiFaults : public CApiRanks {};

TEST_F(CApiFaults, RanksThatDifferDeclineAndGoOn) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      Say(link, "tuned", group, Tune(group, 256));
      const std::string before = Explained(group);
      // Another size, and then another number of sizes, on one rank.
      Say(link, "other size", group, Tune(group, rank == 1 ? 2048 : 1024));
      const uint64_t two[] = {1024, 4096};
      cotune_tune_options options{};
      options.struct_size = sizeof(options);
      options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
      options.sizes_bytes = two;
      options.size_count = rank == 2 ? 2 : 1;
      Say(link, "other number", group, cotune_tune(group, &options, nullptr));
      options.size_count = 1;
      options.budget_ns = rank == 1 ? kSecondNs : 2 * kSecondNs;
      Say(link, "other setting", group, cotune_tune(group, &options, nullptr));
      if (Explained(group) != before) link.Report("the table has changed");
      Say(link, "call", group, Reduce(group));
      Say(link, "again", group, Tune(group, 1024));
      Say(link, "call", group, Reduce(group, 256));
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "tuned "), ElementsAre("0 ")) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "other size "),
                ElementsAre(AllOf(StartsWith("12 "), HasSubstr("rank 1"), HasSubstr("2048"))));
    EXPECT_THAT(ranks.LinesOf(rank, "other number "), ElementsAre(StartsWith("12 ")));
    EXPECT_THAT(ranks.LinesOf(rank, "other setting "),
                ElementsAre(AllOf(StartsWith("12 "), HasSubstr("rank 1"), HasSubstr("budget"))));
    EXPECT_THAT(ranks.LinesOf(rank, "the table"), IsEmpty()) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "call "), ElementsAre("0 ", "0 ")) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "again "), ElementsAre("0 ")) << ranks.Transcript();
  }
}

// One rank makes a mistake in what it asks for. No rank waits for one that has returned.
TEST_F(CApiFaults, AMistakeOfOneRankIsToldToAllAndTheGroupGoesOn) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      constexpr uint64_t kBytes = 256;
      const auto tune = [&](const char* what, const auto& make_mistake) {
        cotune_tune_options options{};
        options.struct_size = sizeof(options);
        options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
        options.sizes_bytes = &kBytes;
        options.size_count = 1;
        if (rank == 1) make_mistake(options);
        Say(link, what, group, cotune_tune(group, &options, nullptr));
      };
      tune("mistake", [](cotune_tune_options& options) { options.struct_size = 2; });
      tune("mistake", [](cotune_tune_options& options) { options.budget_ns = -1; });
      tune("mistake", [](cotune_tune_options& options) { options.numerics = 77; });
      tune("mistake", [](cotune_tune_options& options) { options.collectives = 1; });
      tune("mistake", [](cotune_tune_options& options) { options.node_count = 1; });
      const char* const path = rank == 1 ? nullptr : database_.c_str();
      Say(link, "mistake", group, cotune_save(group, path));
      tune("tuned", [](cotune_tune_options&) {});
      Say(link, "call", group, Reduce(group));
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "mistake "), AllOf(SizeIs(6), Each(StartsWith("2 "))));
    if (rank != 1) {
      EXPECT_THAT(ranks.LinesOf(rank, "mistake "), Each(HasSubstr("rank 1")));
    }
    EXPECT_THAT(ranks.LinesOf(rank, "tuned "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "call "), ElementsAre("0 "));
  }
}

// Rank 2 dies while the others wait for it in calls that may take ten minutes: rank 0 in the group
// of all, rank 1 in a subgroup. Rank 3 is in no call at all. A subgroup without rank 2 goes on by
// its table until it needs the control channel.
TEST_F(CApiFaults, ADeathEndsEveryWaitForThatRank) {
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
      link.Report("ready");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      if (rank == 0) Say(link, "waited", group, Reduce(group));
      if (rank == 1) Say(link, "waited", with, Reduce(with));
      // The C API has no event for a loss: a rank that is in no call learns of it only by asking,
      // so this one asks until it is told.
      while (rank == 3 && cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      Say(link, "later", group, Reduce(group));
      Say(link, "later", group, cotune_group_check(group));
      if (without != nullptr) {
        Say(link, "without", without, Reduce(without));
        // There is no file. Both ranks hear that until the coordinator knows of the death.
        cotune_result loaded = COTUNE_ERROR_ENVIRONMENT;
        while (loaded == COTUNE_ERROR_ENVIRONMENT) {
          loaded = cotune_load(without, database_.c_str());
        }
        Say(link, "load", without, loaded);
        Say(link, "stopped", without, Reduce(without));
      }
      cotune_group_destroy(with);
      cotune_group_destroy(without);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 3, 2}, "ready", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(2), -SIGKILL);
  const auto names_rank_2 = AllOf(StartsWith("5 "), HasSubstr("rank 2"));
  for (size_t rank : {0, 1, 3}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "before "), ElementsAre("0 "));
    if (rank != 3) {
      EXPECT_THAT(ranks.LinesOf(rank, "waited "), ElementsAre(names_rank_2));
    }
    EXPECT_THAT(ranks.LinesOf(rank, "later "), AllOf(SizeIs(2), Each(names_rank_2)));
  }
  for (size_t rank : {0, 3}) {
    EXPECT_THAT(ranks.LinesOf(rank, "without "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "load "), ElementsAre(names_rank_2));
    EXPECT_THAT(ranks.LinesOf(rank, "stopped "), ElementsAre(names_rank_2));
  }
}

// The first rank of each group waits for nobody that it could see dying, as a GPU does: only an
// abort ends its call, and only the control channel knows of the death.
TEST_F(CApiFaults, ADeathEndsWaitsThatOnlyAnAbortEnds) {
  SetFakeScript("choice stuck default hangs_on=0");
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link, fake_plugins_);
      if (group == nullptr) return 1;
      cotune_group* const with = rank > 0 ? Split(group, "with", {1, 2}, link) : nullptr;
      link.Report("ready");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      cotune_group* const waits = rank == 0 ? group : with;
      Say(link, "waited", waits, Reduce(waits));
      Say(link, "checked", waits, cotune_group_check(waits));
      cotune_group_destroy(with);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 2}, "ready", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1}) {
    SCOPED_TRACE(ranks.Transcript());
    const auto names_rank_2 = AllOf(StartsWith("5 "), HasSubstr("rank 2 died"));
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "waited "), ElementsAre(names_rank_2));
    EXPECT_THAT(ranks.LinesOf(rank, "checked "), ElementsAre(names_rank_2));
  }
}

// A first death ends the job's control channel. The death of a rank after that still ends the calls
// that wait for it, and is named, not the first one, in a group that has only the second rank.
// Ranks that leave as they should are no loss for those that stay.
TEST_F(CApiFaults, ASecondDeathEndsWaitsOfGroupsThatTheFirstLeftAlone) {
  SetFakeScript("choice stuck default hangs_on=0");
  RankProcesses ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 4, link, fake_plugins_);
      if (group == nullptr) return 1;
      // The first rank of each waits until it is aborted. Rank 3 leaves in the meantime.
      cotune_group* const pair = rank < 2 ? Split(group, "pair", {0, 1}, link) : nullptr;
      cotune_group* const other =
          rank == 0 || rank == 3 ? Split(group, "other", {0, 3}, link) : nullptr;
      link.Report("ready");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      while (cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      Say(link, "first", group, cotune_group_check(group));
      if (rank == 3) {
        cotune_group_destroy(other);
        cotune_group_destroy(group);
        return 0;
      }
      link.AwaitWord();
      if (rank == 1) kill(getpid(), SIGKILL);
      Say(link, "other", other, cotune_group_check(other));
      Say(link, "waited", pair, Reduce(pair));
      Say(link, "checked", pair, cotune_group_check(pair));
      Say(link, "other", other, cotune_group_check(other));
      cotune_group_destroy(other);
      cotune_group_destroy(pair);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 3, 2}, "ready", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({2, 3}, kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.Release({0, 1}, "first ", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  for (size_t rank : {0, 1, 3}) {
    EXPECT_THAT(ranks.LinesOf(rank, "first "),
                ElementsAre(AllOf(StartsWith("5 "), HasSubstr("rank 2 died"))));
  }
  const auto names_rank_1 =
      AllOf(StartsWith("5 "), HasSubstr("rank 1 died"), Not(HasSubstr("rank 2")));
  EXPECT_EQ(ranks.ExitOf(0), 0);
  EXPECT_THAT(ranks.LinesOf(0, "waited "), ElementsAre(names_rank_1));
  EXPECT_THAT(ranks.LinesOf(0, "checked "), ElementsAre(names_rank_1));
  EXPECT_THAT(ranks.LinesOf(0, "other "), ElementsAre("0 ", "0 "));
}

// A rank that needs an agreement after a death elsewhere stops the group. The other rank, which
// waits in a call, is told of that death, and that it is an abort: no rank of its group is lost.
TEST_F(CApiFaults, AGroupThatAPeerStopsAfterADeathElsewhereSaysSo) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link);
      if (group == nullptr) return 1;
      cotune_group* const pair = rank < 2 ? Split(group, "pair", {0, 1}, link) : nullptr;
      link.Report("ready");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      while (cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      Say(link, "ends", pair, rank == 0 ? Reduce(pair) : cotune_load(pair, database_.c_str()));
      link.Report("done");
      link.AwaitWord();
      cotune_group_destroy(pair);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 2}, "ready", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.Release({0, 1}, "done", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_THAT(ranks.LinesOf(1, "ends "),
              ElementsAre(AllOf(StartsWith("5 "), HasSubstr("rank 2 died"))));
  EXPECT_THAT(ranks.LinesOf(0, "ends "),
              ElementsAre(AllOf(StartsWith("9 "), HasSubstr("a rank outside the group"),
                                HasSubstr("rank 2 died"))));
}

// Rank 1's own plugin never finishes. Rank 0 is healthy and says so of rank 1, which must not name
// rank 0 in turn.
TEST_F(CApiFaults, ARankWhosePluginNeverFinishesNamesNobodyElse) {
  SetFakeScript("choice a default; breach progress never_done on=1");
  call_timeout_ns_ = kSecondNs;
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link, fake_plugins_);
      if (group == nullptr) return 1;
      Say(link, "ends", group, Reduce(group));
      if (rank == 1) Say(link, "later", group, Reduce(group));
      link.Report("done");
      link.AwaitWord();
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1}, "done", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_THAT(ranks.LinesOf(0, "ends "), ElementsAre(AllOf(StartsWith("5 "), HasSubstr("rank 1"))));
  EXPECT_THAT(ranks.LinesOf(1, "ends "),
              ElementsAre(AllOf(StartsWith("6 "), HasSubstr("that the call is in progress"),
                                HasSubstr("stay in use until the group is destroyed"),
                                Not(HasSubstr("is lost")))));
  EXPECT_EQ(ranks.LinesOf(1, "later "), ranks.LinesOf(1, "ends "));
}

// Rank 0's backend has asked who is late, which takes longer than 0.1 s.
TEST_F(CApiFaults, ARankThatIsNamedAnEighthOfTheTimeoutAfterTheDeadlineIsNamedToTheUser) {
  SetFakeScript("choice a default names_late hangs_on=1");
  call_timeout_ns_ = 2 * kSecondNs;
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link, fake_plugins_);
      if (group == nullptr) return 1;
      Say(link, "ends", group, Reduce(group));
      link.Report("done");
      link.AwaitWord();
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1}, "done", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(0, "ends "),
              ElementsAre(AllOf(StartsWith("5 "), HasSubstr("rank 1 had not sent its data"))))
      << ranks.Transcript();
}

// The first rank waits for a rank that is late, until its own deadline, after a rank of another
// group has died: the error is no loss of that other rank.
TEST_F(CApiFaults, ARankOutsideTheGroupIsNotNamedForADeadline) {
  SetFakeScript("choice stuck default hangs_on=0");
  call_timeout_ns_ = kSecondNs;
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link, fake_plugins_);
      if (group == nullptr) return 1;
      cotune_group* const pair = rank < 2 ? Split(group, "pair", {0, 1}, link) : nullptr;
      link.Report("ready");
      link.AwaitWord();
      if (rank == 2) kill(getpid(), SIGKILL);
      while (cotune_group_check(group) == COTUNE_SUCCESS) usleep(1000);
      if (rank == 0) Say(link, "waited", pair, Reduce(pair));
      link.Report("done");
      link.AwaitWord();
      cotune_group_destroy(pair);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.Release({0, 1, 2}, "ready", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.Release({0, 1}, "done", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(0, "waited "),
              ElementsAre(AllOf(StartsWith("6 "), HasSubstr("which of them is late"))))
      << ranks.Transcript();
}

}  // namespace
}  // namespace cotune
