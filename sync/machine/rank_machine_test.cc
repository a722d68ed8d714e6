// One rank, event by event.
#include "sync/machine/rank_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kDeadlineNs = 1'000'000'000;

// Rank 1 of 2, joined at time 0, and what it did at the last event.
class Rank {
 public:
  Rank() : machine_({{2, "job", "1.0"}, 1}) {
    At(0, JoinAsked{1, kDeadlineNs});
    wire::Frame release;
    release.mutable_release();
    Hears(0, release);
  }

  void At(int64_t now_ns, const RankEvent& event) {
    sent_.clear();
    completed_.reset();
    disconnected_ = false;
    losses_.clear();
    for (RankAction& action : machine_.OnEvent(event, now_ns)) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) {
        sent_.push_back(send->frame);
      } else if (auto* complete = std::get_if<CompleteCall>(&action)) {
        completed_ = std::move(complete->result);
      } else if (auto* loss = std::get_if<ReportLoss>(&action)) {
        losses_.push_back(loss->error);
      } else {
        disconnected_ = true;
      }
    }
  }

  void Hears(int64_t now_ns, const wire::Frame& frame) {
    At(now_ns, CoordinatorFrameCame{std::make_shared<wire::Frame>(frame)});
  }

  // Nothing happens but that heartbeats are due.
  void Idles(int64_t from_ns, int64_t until_ns) {
    for (int64_t now_ns = from_ns; now_ns < until_ns; now_ns += kHeartbeatIntervalNs) {
      At(now_ns, HeartbeatDue{});
    }
  }

  void Calls(int64_t now_ns, wire::CallKind kind, const std::string& name = "") {
    CallAsked call{2, {}, kDeadlineNs};
    call.arrive.set_kind(kind);
    call.arrive.set_name(name);
    At(now_ns, call);
  }

  void Reads(int64_t now_ns, int64_t deadline_ns) {
    StoreAsked read{2, {}, deadline_ns};
    read.request.set_operation(wire::STORE_GET);
    read.request.set_key("k");
    At(now_ns, read);
  }

  void HearsPrepare(int64_t now_ns, uint64_t call = 1) {
    wire::Frame frame;
    frame.mutable_prepare()->set_call(call);
    Hears(now_ns, frame);
  }

  void HearsRuling(int64_t now_ns, wire::Ruling ruling, uint64_t call = 1) {
    wire::Frame frame;
    frame.mutable_decision()->set_call(call);
    frame.mutable_decision()->set_ruling(ruling);
    Hears(now_ns, frame);
  }

  const std::vector<FramePtr>& sent() const { return sent_; }
  bool completed() const { return completed_.has_value(); }
  bool succeeded() const { return completed_.has_value() && completed_->has_value(); }
  wire::Ruling ruling() const { return (**completed_)->decision().ruling(); }
  const Error& error() const { return completed_->error(); }
  bool disconnected() const { return disconnected_; }
  const std::vector<Error>& losses() const { return losses_; }
  RankMachine& machine() { return machine_; }

 private:
  RankMachine machine_;
  std::vector<FramePtr> sent_;
  std::optional<Result<FramePtr>> completed_;
  bool disconnected_ = false;
  std::vector<Error> losses_;
};

wire::Frame LossOf(int rank) {
  wire::Frame frame;
  frame.mutable_failure()->set_code(static_cast<int32_t>(ErrorCode::kRankLost));
  frame.mutable_failure()->set_what("a rank is gone");
  frame.mutable_failure()->add_ranks(rank);
  return frame;
}

TEST(RankMachine, CallsAreNumbered) {
  Rank rank;
  for (uint64_t call = 1; call <= 3; ++call) {
    rank.Calls(1, wire::CALL_STEP, "s");
    ASSERT_THAT(rank.sent(), SizeIs(1));
    EXPECT_EQ(rank.sent()[0]->arrive().call(), call);
    wire::Frame release;
    release.mutable_release()->set_call(call);
    rank.Hears(2, release);
    EXPECT_TRUE(rank.succeeded());
  }
}

TEST(RankMachine, SecondCallOnAChannelIsRefusedAndTheFirstGoesOn) {
  Rank rank;
  rank.Calls(1, wire::CALL_STEP, "s");
  rank.Calls(2, wire::CALL_STEP, "t");
  EXPECT_EQ(rank.error().code, ErrorCode::kInternal);
  EXPECT_THAT(rank.sent(), IsEmpty());
  wire::Frame release;
  release.mutable_release()->set_call(1);
  rank.Hears(3, release);
  EXPECT_TRUE(rank.succeeded());
}

TEST(RankMachine, AgreementGoesThroughVoteAcknowledgementAndGo) {
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  ASSERT_TRUE(rank.succeeded());
  rank.At(3, VoteAsked{3, "", true});
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_TRUE(rank.sent()[0]->vote().yes());
  rank.HearsRuling(4, wire::RULING_COMMIT);
  EXPECT_FALSE(rank.completed());
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_TRUE(rank.sent()[0]->has_acknowledge());
  rank.HearsRuling(5, wire::RULING_GO);
  ASSERT_TRUE(rank.succeeded());
  EXPECT_EQ(rank.ruling(), wire::RULING_GO);
}

TEST(RankMachine, YesAfterTheDeadlineIsANo) {
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  rank.At(kDeadlineNs, VoteAsked{3, "", true});
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_FALSE(rank.sent()[0]->vote().yes());
  // And it holds itself to it.
  rank.HearsRuling(kDeadlineNs + 1, wire::RULING_COMMIT);
  EXPECT_EQ(rank.error().code, ErrorCode::kRankLost);
}

TEST(RankMachine, DeclinedWhileTheCallerStillLooksIsToldAtTheVote) {
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  rank.HearsRuling(3, wire::RULING_DECLINED);
  EXPECT_FALSE(rank.completed());
  rank.At(4, VoteAsked{3, "", true});
  ASSERT_TRUE(rank.succeeded());
  EXPECT_EQ(rank.ruling(), wire::RULING_DECLINED);
}

TEST(RankMachine, LostAfterYesIsInDoubtAndSaysSo) {
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  rank.At(3, VoteAsked{3, "", true});
  rank.At(4, CoordinatorEnded{""});
  EXPECT_EQ(rank.error().code, ErrorCode::kRankLost);
  EXPECT_THAT(rank.error().ranks, ElementsAre(0));
  EXPECT_THAT(rank.error().what, HasSubstr("does not know the outcome and stops"));
}

TEST(RankMachine, LostAfterNoIsNotInDoubt) {
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  rank.At(3, VoteAsked{3, "", false});
  rank.At(4, CoordinatorEnded{""});
  EXPECT_EQ(rank.error().code, ErrorCode::kRankLost);
  EXPECT_THAT(rank.error().what, Not(HasSubstr("outcome")));
}

TEST(RankMachine, RulingsOutOfTurnAreABrokenProtocol) {
  for (const wire::Ruling ruling : {wire::RULING_COMMIT, wire::RULING_GO, wire::RULING_NONE}) {
    Rank rank;
    rank.Calls(1, wire::CALL_AGREE);
    rank.HearsRuling(2, ruling);  // before any PREPARE
    EXPECT_EQ(rank.error().code, ErrorCode::kRankLost) << ruling;
  }
  Rank declined_after_commit;
  declined_after_commit.Calls(1, wire::CALL_AGREE);
  declined_after_commit.HearsPrepare(2);
  declined_after_commit.At(3, VoteAsked{3, "", true});
  declined_after_commit.HearsRuling(4, wire::RULING_COMMIT);
  declined_after_commit.HearsRuling(5, wire::RULING_DECLINED);
  EXPECT_EQ(declined_after_commit.error().code, ErrorCode::kRankLost);
}

TEST(RankMachine, ADeadlineTravelsAsTheTimeThatIsLeft) {
  Rank rank;
  rank.Calls(kDeadlineNs - 7, wire::CALL_STEP, "s");
  EXPECT_EQ(rank.sent()[0]->arrive().deadline_left_ns(), 7);
  rank.Reads(kDeadlineNs, kDeadlineNs + 5);
  EXPECT_EQ(rank.sent()[0]->store_request().deadline_left_ns(), 5);
  rank.Reads(kDeadlineNs, INT64_MAX);
  EXPECT_EQ(rank.sent()[0]->store_request().deadline_left_ns(), INT64_MAX) << "without end";
}

TEST(RankMachine, AReleaseTellsWhenTheJobBegan) {
  Rank rank;
  rank.Calls(1'000, wire::CALL_STEP, "s");
  wire::Frame frame;
  frame.mutable_release()->set_call(1);
  frame.mutable_release()->set_elapsed_duration_ns(300);
  frame.mutable_release()->add_held_duration_ns(999);  // of rank 0
  frame.mutable_release()->add_held_duration_ns(40);
  rank.Hears(1'100, frame);
  EXPECT_EQ(rank.machine().job_clock().begin_ns(), 1'100 - (100 - 40) / 2 - 300);
}

TEST(RankMachine, SilenceCountsOnlyWhileItListens) {
  Rank rank;
  const int64_t late_ns = 10 * kHeartbeatTimeoutNs;
  EXPECT_EQ(rank.machine().next_time_ns(), INT64_MAX);
  rank.Idles(0, late_ns);
  CallAsked call{2, {}, INT64_MAX};
  call.arrive.set_kind(wire::CALL_STEP);
  rank.At(late_ns, call);
  EXPECT_EQ(rank.machine().next_time_ns(), late_ns + kHeartbeatTimeoutNs);
  rank.Idles(late_ns, late_ns + kHeartbeatTimeoutNs);
  rank.At(late_ns + kHeartbeatTimeoutNs - 1, RankTimeReached{});
  EXPECT_FALSE(rank.completed());
  rank.At(late_ns + kHeartbeatTimeoutNs, RankTimeReached{});
  EXPECT_THAT(rank.error().ranks, ElementsAre(0));
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_TRUE(rank.sent()[0]->has_give_up());
}

TEST(RankMachine, RankThatGaveUpStillHearsOfLossesAndSaysGoodbye) {
  Rank rank;
  rank.Calls(0, wire::CALL_STEP, "s");
  rank.Idles(0, kDeadlineNs + kVerdictGraceNs);
  rank.At(kDeadlineNs + kVerdictGraceNs, RankTimeReached{});
  ASSERT_THAT(rank.losses(), SizeIs(1));
  EXPECT_FALSE(rank.disconnected());
  rank.Hears(kDeadlineNs + kVerdictGraceNs + 1, LossOf(2));
  ASSERT_THAT(rank.losses(), SizeIs(1));
  EXPECT_THAT(rank.losses()[0].ranks, ElementsAre(2));
  EXPECT_THAT(rank.machine().failure()->ranks, ElementsAre(0));
  rank.At(kDeadlineNs + kVerdictGraceNs + 2, LeaveAsked{""});
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_TRUE(rank.sent()[0]->has_bye());
  EXPECT_TRUE(rank.disconnected());
}

TEST(RankMachine, RankThatGivesUpOnPurposeEndsItsCallsAndTellsTheOthers) {
  const Error error{ErrorCode::kAborted, "rank 1 gave up the job", "", "", "", {1}};
  for (const bool has_failed : {false, true}) {
    Rank rank;
    rank.Calls(0, wire::CALL_STEP, "s");
    if (has_failed) rank.Hears(1, LossOf(2));
    rank.At(2, GiveUpAsked{error});
    EXPECT_EQ(rank.completed(), !has_failed);  // the call has ended with the failure before
    ASSERT_THAT(rank.losses(), SizeIs(1));
    EXPECT_EQ(rank.losses()[0].code, ErrorCode::kAborted);
    ASSERT_THAT(rank.sent(), SizeIs(1));
    ASSERT_TRUE(rank.sent()[0]->has_give_up());
    EXPECT_EQ(rank.sent()[0]->give_up().failure().what(), "rank 1 gave up the job");
    EXPECT_THAT(rank.machine().failure()->ranks, ElementsAre(has_failed ? 2 : 1));
    rank.At(3, LeaveAsked{""});
    rank.At(4, GiveUpAsked{error});  // it is out of the job
    EXPECT_THAT(rank.sent(), testing::IsEmpty());
  }
}

TEST(RankMachine, RankThatCannotReadRankZeroLeavesWithAGoodbye) {
  Rank rank;
  rank.At(1, CoordinatorBadBytesCame{"no frame"});
  EXPECT_THAT(rank.losses(), SizeIs(1));
  ASSERT_THAT(rank.sent(), SizeIs(2));
  EXPECT_TRUE(rank.sent()[0]->has_give_up());
  EXPECT_TRUE(rank.sent()[1]->has_bye());
  EXPECT_TRUE(rank.disconnected());
}

TEST(RankMachine, RankThatWasStoppedItselfReadsBeforeItBlames) {
  Rank rank;
  rank.Calls(1, wire::CALL_STEP, "s");
  const int64_t awake_ns = 3 * kHeartbeatTimeoutNs;
  rank.At(awake_ns, RankTimeReached{});
  EXPECT_FALSE(rank.completed());
  EXPECT_EQ(rank.machine().next_time_ns(), awake_ns + kHeartbeatIntervalNs);
  wire::Frame release;
  release.mutable_release()->set_call(1);
  rank.Hears(awake_ns + 1, release);
  EXPECT_TRUE(rank.succeeded());
}

TEST(RankMachine, WaitsForTheCoordinatorsVerdictBeforeItBlamesRankZero) {
  Rank rank;
  rank.Calls(1, wire::CALL_STEP, "s");
  wire::Frame heartbeat;
  heartbeat.mutable_heartbeat();
  rank.Idles(1, kDeadlineNs);
  rank.Hears(kDeadlineNs, heartbeat);
  rank.At(kDeadlineNs + kVerdictGraceNs - 1, RankTimeReached{});
  EXPECT_FALSE(rank.completed());
  rank.At(kDeadlineNs + kVerdictGraceNs, RankTimeReached{});
  EXPECT_THAT(rank.error().what, HasSubstr("no answer by the deadline"));
  EXPECT_THAT(rank.error().where, HasSubstr("step 's'"));
}

TEST(RankMachine, CallBehindItsDeadlineLeavesTheCoordinatorTimeToAnswer) {
  constexpr int64_t kLateNs = kDeadlineNs + 3 * kVerdictGraceNs;
  Rank rank;
  rank.Idles(0, kLateNs);
  rank.Calls(kLateNs, wire::CALL_STEP, "s");
  EXPECT_EQ(rank.machine().next_time_ns(), kLateNs + kVerdictGraceNs);
  rank.At(kLateNs + kVerdictGraceNs - 1, RankTimeReached{});
  EXPECT_FALSE(rank.completed());
  wire::Frame release;
  release.mutable_release()->set_call(1);
  rank.Hears(kLateNs + kVerdictGraceNs - 1, release);
  EXPECT_TRUE(rank.succeeded());
}

TEST(RankMachine, LateVoteLeavesTheCoordinatorTimeToAnswer) {
  constexpr int64_t kLateNs = kDeadlineNs + 3 * kVerdictGraceNs;
  Rank rank;
  rank.Calls(1, wire::CALL_AGREE);
  rank.HearsPrepare(2);
  rank.Idles(3, kLateNs);
  rank.At(kLateNs, VoteAsked{3, "", true});
  EXPECT_EQ(rank.machine().next_time_ns(), kLateNs + kVerdictGraceNs);
  rank.Hears(kLateNs + 1, LossOf(1));
  EXPECT_THAT(rank.error().ranks, ElementsAre(1));
}

TEST(RankMachine, ReadOfTheStoreBlamesRankZeroForSilenceAlone) {
  for (const int64_t deadline_ns : {int64_t{0}, kHeartbeatIntervalNs}) {
    Rank rank;
    rank.Idles(0, kHeartbeatIntervalNs);
    rank.Reads(kHeartbeatIntervalNs, deadline_ns);
    const int64_t silent_ns = kHeartbeatIntervalNs + kHeartbeatTimeoutNs;
    EXPECT_EQ(rank.machine().next_time_ns(), silent_ns) << deadline_ns;
    rank.Idles(kHeartbeatIntervalNs, silent_ns);
    rank.At(silent_ns - 1, RankTimeReached{});
    EXPECT_FALSE(rank.completed()) << deadline_ns;
    rank.At(silent_ns, RankTimeReached{});
    EXPECT_THAT(rank.error().what, HasSubstr("nothing was heard from rank 0")) << deadline_ns;
  }
}

TEST(RankMachine, AfterAFailureEveryCallFailsTheSame) {
  Rank rank;
  rank.Hears(1, LossOf(0));
  EXPECT_THAT(rank.losses(), SizeIs(1));
  rank.Calls(2, wire::CALL_STEP, "s");
  EXPECT_EQ(rank.error().what, "a rank is gone");
  EXPECT_THAT(rank.sent(), IsEmpty());
  rank.At(3, StoreAsked{4, {}, 0});
  EXPECT_EQ(rank.error().what, "a rank is gone");
  rank.At(4, LeaveAsked{"subgroup"});
  EXPECT_THAT(rank.sent(), IsEmpty());
}

TEST(RankMachine, AfterAFailureItStillHearsOfEveryLaterLoss) {
  Rank rank;
  rank.Hears(1, LossOf(2));
  EXPECT_FALSE(rank.disconnected());
  rank.Hears(2, LossOf(3));
  ASSERT_THAT(rank.losses(), SizeIs(1));
  EXPECT_THAT(rank.losses()[0].ranks, ElementsAre(3));
  EXPECT_THAT(rank.machine().failure()->ranks, ElementsAre(2));
  rank.At(3, CoordinatorEnded{""});
  ASSERT_THAT(rank.losses(), SizeIs(1));
  EXPECT_THAT(rank.losses()[0].ranks, ElementsAre(0));
  EXPECT_TRUE(rank.disconnected());
  rank.At(4, CoordinatorEnded{""});
  EXPECT_THAT(rank.losses(), IsEmpty());
}

TEST(RankMachine, AfterAFailureAGoodbyeOfEitherSideIsNoLoss) {
  wire::Frame bye;
  bye.mutable_bye();
  Rank left_by_rank_0;
  left_by_rank_0.Hears(1, LossOf(2));
  left_by_rank_0.Hears(2, bye);
  EXPECT_TRUE(left_by_rank_0.disconnected());
  left_by_rank_0.At(3, CoordinatorEnded{""});
  EXPECT_THAT(left_by_rank_0.losses(), IsEmpty());
  left_by_rank_0.At(4, LeaveAsked{""});
  EXPECT_THAT(left_by_rank_0.sent(), IsEmpty());

  Rank leaves;
  leaves.Hears(1, LossOf(2));
  leaves.At(2, LeaveAsked{""});
  ASSERT_THAT(leaves.sent(), SizeIs(1));
  EXPECT_TRUE(leaves.sent()[0]->has_bye());
  EXPECT_TRUE(leaves.disconnected());
  leaves.At(3, CoordinatorEnded{""});
  EXPECT_THAT(leaves.losses(), IsEmpty());
}

TEST(RankMachine, NothingIsSentAfterLeaving) {
  Rank rank;
  rank.At(1, LeaveAsked{""});
  ASSERT_THAT(rank.sent(), SizeIs(1));
  EXPECT_TRUE(rank.sent()[0]->has_bye());
  EXPECT_TRUE(rank.disconnected());
  rank.At(2, HeartbeatDue{});
  EXPECT_THAT(rank.sent(), IsEmpty());
  rank.Calls(3, wire::CALL_STEP, "s");
  EXPECT_EQ(rank.error().code, ErrorCode::kInternal);
  EXPECT_THAT(rank.sent(), IsEmpty());
}

}  // namespace
}  // namespace cotune::sync
