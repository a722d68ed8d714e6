// The coordinator after its first failure: later deaths are still told, and nobody is blamed twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sync/machine/coordinator_machine.h"
#include "sync/machine/testing/coordinator_desk.h"
#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CoordinatorFailed, EveryLaterDeathIsStillTold) {
  Desk desk(4);
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{3});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(2));
  desk.At(2, ConnectionEnded{2});
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 4));
  EXPECT_THAT(desk.sent()[0].frame->failure().ranks(), ElementsAre(1));
  EXPECT_THAT(desk.sent()[0].frame->failure().what(), HasSubstr("rank 1 died"));
  EXPECT_THAT(desk.failure().ranks, ElementsAre(2));  // the first one stays what calls fail with
}

TEST(CoordinatorFailed, ARankThatLeavesIsNoLaterDeath) {
  wire::Frame bye;
  bye.mutable_bye();
  Desk desk(3);
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{3});
  desk.Frame(2, 2, bye);
  desk.At(3, ConnectionEnded{2});
  EXPECT_THAT(desk.sent(), IsEmpty());
  desk.At(4, StopAsked{});
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_TRUE(desk.sent()[0].frame->has_bye());
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1));
}

// Its other groups must hear of its death as of any other rank's.
TEST(CoordinatorFailed, ARankThatGaveUpMayStillDieAndSoMayItLeave) {
  wire::Frame give_up;
  give_up.mutable_give_up()->mutable_failure()->set_what("nothing was heard from rank 0");
  give_up.mutable_give_up()->mutable_failure()->add_ranks(0);
  wire::Frame bye;
  bye.mutable_bye();
  for (const bool is_first_failure : {true, false}) {
    for (const bool leaves : {true, false}) {
      Desk desk(4);
      desk.JoinAll(0);
      if (!is_first_failure) desk.At(1, ConnectionEnded{4});
      desk.Frame(2, 2, give_up);
      if (leaves) desk.Frame(3, 2, bye);
      desk.At(4, ConnectionEnded{2});
      if (leaves) {
        EXPECT_THAT(desk.sent(), IsEmpty());
        continue;
      }
      ASSERT_THAT(desk.sent(), SizeIs(1)) << is_first_failure;
      EXPECT_TRUE(desk.sent()[0].frame->has_failure());
      EXPECT_THAT(desk.sent()[0].frame->failure().ranks(), ElementsAre(1));
    }
  }
}

// Groups that had no part in the first failure hear of it.
TEST(CoordinatorFailed, ARankThatGivesUpOnPurposeIsALaterLoss) {
  wire::Frame give_up;
  wire::Failure& failure = *give_up.mutable_give_up()->mutable_failure();
  failure = FailureFromError({ErrorCode::kAborted, "rank 1 gave up the job", "", "", "", {1}});
  Desk desk(4);
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{4});
  desk.Frame(2, 2, give_up);
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 2, 3));
  EXPECT_EQ(desk.sent()[0].frame->failure().what(), "rank 1 gave up the job");
  EXPECT_EQ(ErrorFromFailure(desk.sent()[0].frame->failure()).code, ErrorCode::kAborted);
  EXPECT_THAT(desk.failure().ranks, ElementsAre(3));  // the death
}

TEST(CoordinatorFailed, BrokenConnectionIsNoDeathOfRankZero) {
  Desk desk(2);
  desk.JoinAll(0);
  desk.At(1, BadBytesCame{2, "no frame"});
  ASSERT_THAT(desk.sent(), SizeIs(2));
  EXPECT_TRUE(desk.sent()[0].frame->has_failure());
  EXPECT_TRUE(desk.sent()[1].frame->has_bye());
  EXPECT_THAT(desk.sent()[1].to, ElementsAre(2));
}

TEST(CoordinatorFailed, BytesThatAreNoFrameAreALaterLoss) {
  Desk desk(4);
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{4});
  desk.At(2, BadBytesCame{2, "no frame"});
  ASSERT_THAT(desk.sent(), SizeIs(2));
  EXPECT_THAT(desk.sent()[0].frame->failure().ranks(), ElementsAre(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 2, 3));
  EXPECT_TRUE(desk.sent()[1].frame->has_bye());
  EXPECT_THAT(desk.sent()[1].to, ElementsAre(2));
}

TEST(CoordinatorFailed, TheLineAboutTheFailureOfTheJobHasItsCodeAndNoLaterOne) {
  Desk desk(3);
  desk.At(0, Connected{7});
  desk.At(0, BadBytesCame{7, "no frame"});
  EXPECT_THAT(desk.logged(), SizeIs(1));
  EXPECT_EQ(desk.logged_failure(), std::nullopt) << "nothing has failed";
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{3});
  EXPECT_THAT(desk.logged(), ElementsAre(desk.failure().ToText()));
  EXPECT_EQ(desk.logged_failure(), ErrorCode::kRankLost);
  desk.At(2, ConnectionEnded{2});
  EXPECT_THAT(desk.logged(), ElementsAre(HasSubstr("rank 1 died")));
  EXPECT_EQ(desk.logged_failure(), std::nullopt) << "the job had failed before";
}

// Nothing is due after a failure, so the time between two events is no stop of this process.
TEST(CoordinatorFailed, LongSilenceIsNotTakenForAStopOfRankZero) {
  Desk desk(3);
  desk.JoinAll(0);
  desk.At(1, ConnectionEnded{3});
  EXPECT_EQ(desk.machine().next_time_ns(), INT64_MAX);
  desk.At(10 * kHeartbeatTimeoutNs, ConnectionEnded{2});
  EXPECT_THAT(desk.logged(), ElementsAre(HasSubstr("rank 1 died")));
  desk.At(20 * kHeartbeatTimeoutNs, StopAsked{});
  EXPECT_THAT(desk.logged(), IsEmpty());
}

}  // namespace
}  // namespace cotune::sync
