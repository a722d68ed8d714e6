// The coordinator, event by event.
#include "sync/machine/coordinator_machine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sync/machine/testing/coordinator_desk.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Coordinator, ReleasesTheRendezvousWhenTheLastRankComes) {
  Desk desk(3);
  desk.Hello(10, 2);
  desk.Hello(20, 0);
  EXPECT_THAT(desk.sent(), IsEmpty());
  desk.Hello(30, 1);
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 2, 3));
  EXPECT_TRUE(desk.sent()[0].frame->has_release());
  EXPECT_EQ(desk.sent()[0].frame->release().elapsed_duration_ns(), 20);
}

TEST(Coordinator, StrangerThatSaysNothingIsClosedAfterItsTime) {
  Desk desk(1);
  desk.At(1'000, Connected{9});
  EXPECT_EQ(desk.machine().next_time_ns(), 1'000 + kHelloTimeoutNs);
  desk.At(999 + kHelloTimeoutNs, TimeReached{});
  EXPECT_THAT(desk.closed(), IsEmpty());
  desk.At(1'000 + kHelloTimeoutNs, TimeReached{});
  EXPECT_THAT(desk.closed(), ElementsAre(9));
}

TEST(Coordinator, FloodOfStrangersClosesTheOldestAndRanksStillGetIn) {
  Desk desk(1);
  for (uint64_t i = 0; i < kUnidentifiedMax + 1; ++i) {
    desk.At(static_cast<int64_t>(i), Connected{100 + i});
    EXPECT_THAT(desk.closed(), IsEmpty());
  }
  desk.At(1'000, Connected{1});
  EXPECT_THAT(desk.closed(), ElementsAre(100));
  wire::Frame hello;
  *hello.mutable_hello() = MakeHello(desk.Job(), 0, INT64_MAX);
  desk.Frame(1'001, 1, hello);
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_TRUE(desk.sent()[0].frame->has_release());
}

TEST(Coordinator, FrameLengthsDependOnWhoSpeaks) {
  Desk desk(2);
  desk.At(0, Connected{1});
  EXPECT_EQ(desk.machine().FrameBytesMax(1), kHelloFrameBytesMax);
  desk.JoinAll(0);
  EXPECT_EQ(desk.machine().FrameBytesMax(1), kProposalFrameBytesMax);  // rank 0 proposes
  EXPECT_EQ(desk.machine().FrameBytesMax(2), kFrameBytesMax);
  EXPECT_EQ(desk.machine().FrameBytesMax(77), kHelloFrameBytesMax);
}

TEST(Coordinator, MismatchAfterTheRendezvousDeclinesOnlyTheStranger) {
  Desk desk(1);
  desk.JoinAll(0);
  desk.At(1, Connected{50});
  wire::Frame hello;
  *hello.mutable_hello() = MakeHello({2, "job", "1.0"}, 1, INT64_MAX);
  desk.Frame(2, 50, hello);
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_TRUE(desk.sent()[0].frame->has_decline());
  EXPECT_THAT(desk.closed(), ElementsAre(50));
  EXPECT_FALSE(desk.machine().failure().has_value());
}

// ---- While ranks still come ----

wire::Frame HelloFrame(const JobIdentity& job, int rank, int64_t deadline_left_ns = INT64_MAX) {
  wire::Frame frame;
  *frame.mutable_hello() = MakeHello(job, rank, deadline_left_ns);
  return frame;
}

// The lines of the last event about ranks that are missing.
std::vector<std::string> WaitingLines(const Desk& desk) {
  std::vector<std::string> lines;
  for (const std::string& line : desk.logged()) {
    if (line.starts_with("waiting for")) lines.push_back(line);
  }
  return lines;
}

TEST(CoordinatorRendezvous, RanksThatDoNotComeAreNamedOnceAfterAWhile) {
  Desk desk(4);
  const int64_t deadline_ns = 60'000'000'000;
  desk.At(10, Connected{1});
  desk.Frame(10, 1, HelloFrame(desk.Job(), 0, deadline_ns));
  desk.Hello(20, 2);
  desk.At(9 + kJoinNoticeNs, TimeReached{});
  EXPECT_THAT(WaitingLines(desk), IsEmpty());
  desk.At(10 + kJoinNoticeNs, TimeReached{});
  EXPECT_THAT(WaitingLines(desk),
              ElementsAre("waiting for ranks 1, 3, which have not joined the job "
                          "yet, for at most 55.0 s more"));
  desk.At(10 + 2 * kJoinNoticeNs, TimeReached{});
  EXPECT_THAT(WaitingLines(desk), IsEmpty());
}

TEST(CoordinatorRendezvous, TheTimeToNameMissingRanksIsOneThatTheTimerKeeps) {
  Desk desk(2);
  desk.Hello(0, 0);
  // Heartbeats may come at the same time, but nothing later.
  for (int64_t now_ns = 0; now_ns < kJoinNoticeNs;) {
    now_ns = desk.machine().next_time_ns();
    ASSERT_LE(now_ns, kJoinNoticeNs);
    desk.At(now_ns, BytesCame{1});
    desk.At(now_ns, TimeReached{});
  }
  EXPECT_THAT(WaitingLines(desk),
              ElementsAre("waiting for rank 1, which has not joined the job yet, "
                          "without a limit"));
}

TEST(CoordinatorRendezvous, MissingRanksAreNamedByTheErrorAloneIfTheDeadlineIsTheTimeToNameThem) {
  Desk desk(2);
  desk.At(0, Connected{1});
  desk.Frame(0, 1, HelloFrame(desk.Job(), 0, kJoinNoticeNs));
  int64_t now_ns = 0;
  while (!desk.machine().failure().has_value()) {
    now_ns = desk.machine().next_time_ns();
    ASSERT_LE(now_ns, kJoinNoticeNs);
    desk.At(now_ns, BytesCame{1});
    desk.At(now_ns, TimeReached{});
    EXPECT_THAT(WaitingLines(desk), IsEmpty());
  }
  EXPECT_EQ(now_ns, kJoinNoticeNs);
  EXPECT_THAT(desk.machine().failure()->ranks, ElementsAre(1));
}

TEST(CoordinatorRendezvous, NoRankIsNamedByALateTimerPastTheDeadline) {
  Desk desk(2);
  desk.At(0, Connected{1});
  desk.Frame(0, 1, HelloFrame(desk.Job(), 0, kJoinNoticeNs - 1));
  desk.At(kJoinNoticeNs, TimeReached{});
  EXPECT_THAT(WaitingLines(desk), IsEmpty());
}

TEST(CoordinatorRendezvous, NoRankIsNamedWhenAllHaveJoined) {
  Desk desk(2);
  desk.JoinAll(0);
  desk.At(1, BytesCame{1});
  desk.At(kJoinNoticeNs, TimeReached{});
  EXPECT_THAT(WaitingLines(desk), IsEmpty());
}

TEST(CoordinatorRendezvous, ProcessThatIsNoneOfTheMissingRanksIsDeclinedAlone) {
  const JobIdentity own = Desk(3).Job();
  const std::vector<wire::Frame> strangers = {
      HelloFrame({own.world_size, "other job", own.code_version}, 1),
      HelloFrame({own.world_size, "other job", "another version"}, 1),
      HelloFrame({7, "other job", own.code_version}, 6),
      HelloFrame(own, 3),                                           // no rank of the job
      HelloFrame(own, -1),                                          // likewise
      HelloFrame({7, own.job_id, own.code_version}, 6),             // likewise
      HelloFrame(own, 0),                                           // has joined already
      HelloFrame({own.world_size, own.job_id, "late version"}, 0),  // likewise
  };
  for (size_t i = 0; i < strangers.size(); ++i) {
    Desk desk(3);
    desk.Hello(10, 0);
    desk.At(20, Connected{50});
    desk.Frame(21, 50, strangers[i]);
    ASSERT_THAT(desk.sent(), SizeIs(1)) << i;
    EXPECT_THAT(desk.sent()[0].to, ElementsAre(50)) << i;
    EXPECT_TRUE(desk.sent()[0].frame->has_decline()) << i;
    EXPECT_THAT(desk.closed(), ElementsAre(50)) << i;
    EXPECT_THAT(desk.logged(), SizeIs(1)) << i;
    desk.Hello(30, 1);
    desk.Hello(40, 2);
    EXPECT_FALSE(desk.machine().failure().has_value()) << i << ": " << desk.failure().ToText();
    ASSERT_THAT(desk.sent(), SizeIs(1)) << i;
    EXPECT_TRUE(desk.sent()[0].frame->has_release()) << i;
  }
}

TEST(CoordinatorRendezvous, RankThatIsWaitedForAndCannotJoinEndsTheWaitAtOnce) {
  const JobIdentity own = Desk(3).Job();
  wire::Frame other_protocol = HelloFrame(own, 1);
  other_protocol.mutable_hello()->set_protocol(kProtocolVersion + 1);
  const std::vector<std::pair<wire::Frame, std::string>> misfits = {
      {HelloFrame({own.world_size, own.job_id, "2.0"}, 1), "code version '2.0'"},
      {HelloFrame({4, own.job_id, own.code_version}, 1), "world size 4"},
      {other_protocol, "protocol version"},
  };
  for (const auto& [hello, field] : misfits) {
    Desk desk(3);
    desk.Hello(10, 0);
    desk.At(20, Connected{50});
    desk.Frame(21, 50, hello);
    EXPECT_THAT(desk.failure().ranks, ElementsAre(1)) << field;
    EXPECT_THAT(desk.failure().what, HasSubstr(field));
    // Those who are here and the one that cannot join; it is logged once.
    ASSERT_THAT(desk.sent(), SizeIs(2)) << field;
    EXPECT_TRUE(desk.sent()[0].frame->has_failure());
    EXPECT_TRUE(desk.sent()[1].frame->has_decline());
    EXPECT_THAT(desk.logged(), SizeIs(1)) << field;
    // The last one learns the reason when it comes.
    desk.Hello(30, 2);
    ASSERT_THAT(desk.sent(), SizeIs(1));
    EXPECT_THAT(desk.sent()[0].frame->decline().failure().what(), HasSubstr(field));
  }
}

TEST(CoordinatorRendezvous, ProcessThatTriesAgainIsLoggedOnce) {
  Desk desk(2);
  for (ConnectionId id = 50; id < 60; ++id) {
    desk.At(10, Connected{id});
    desk.Frame(11, id, HelloFrame({2, "other job", "1.0"}, 1));
    EXPECT_THAT(desk.closed(), ElementsAre(id));
    EXPECT_THAT(desk.logged(), SizeIs(id == 50 ? 1 : 0));
  }
  // Nor does one that says something else each time fill the log.
  size_t logged = 0;
  for (uint64_t i = 0; i < 2 * kDeclinesLoggedMax; ++i) {
    desk.At(20, Connected{100 + i});
    desk.Frame(21, 100 + i, HelloFrame({2, fmt::format("job {}", i), "1.0"}, 1));
    logged += desk.logged().size();
  }
  EXPECT_EQ(logged, kDeclinesLoggedMax - 1);
}

TEST(CoordinatorRendezvous, DeadlineSaysWhoWasTurnedAway) {
  Desk desk(2);
  desk.At(10, Connected{1});
  desk.Frame(11, 1, HelloFrame(desk.Job(), 0, 4'989));
  desk.At(20, Connected{50});
  desk.Frame(21, 50, HelloFrame({2, "mistyped", "1.0"}, 1));
  desk.At(5'000, TimeReached{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
  EXPECT_THAT(desk.failure().cause,
              AllOf(HasSubstr("has not connected"),
                    HasSubstr("turned away: rank 1 has job id 'mistyped', rank 0 has 'job'")));
}

TEST(Coordinator, SilentRankIsNamedAtItsTimeoutAndNotBefore) {
  Desk desk(3);
  desk.JoinAll(0);
  wire::Frame heartbeat;
  heartbeat.mutable_heartbeat();
  int64_t now_ns = 0;
  while (now_ns + kHeartbeatIntervalNs < kHeartbeatTimeoutNs) {
    now_ns += kHeartbeatIntervalNs;
    for (const ConnectionId id : {1, 3}) desk.Frame(now_ns, id, heartbeat);
    desk.At(now_ns, TimeReached{});
    ASSERT_FALSE(desk.machine().failure().has_value());
  }
  desk.At(kHeartbeatTimeoutNs - 1, TimeReached{});
  EXPECT_FALSE(desk.machine().failure().has_value());
  desk.At(kHeartbeatTimeoutNs, TimeReached{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 2, 3));
}

TEST(Coordinator, CoordinatorThatWasStoppedItselfBlamesNobody) {
  Desk desk(2);
  desk.JoinAll(0);
  const int64_t awake_ns = 10 * kHeartbeatTimeoutNs;
  desk.At(awake_ns, TimeReached{});
  EXPECT_THAT(desk.logged(), ElementsAre(HasSubstr("was stopped for")));
  EXPECT_FALSE(desk.machine().failure().has_value());
  // Its deadlines wait for one interval too, so that what piled up is read first.
  desk.Arrive(awake_ns + 1, 0, 1, wire::CALL_STEP, "s", awake_ns + 2);
  desk.At(awake_ns + 3, TimeReached{});
  EXPECT_FALSE(desk.machine().failure().has_value());
  EXPECT_EQ(desk.machine().next_time_ns(), awake_ns + kHeartbeatIntervalNs);
  desk.At(awake_ns + kHeartbeatIntervalNs, TimeReached{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
}

TEST(Coordinator, DeadlineSaysWhetherTheMissingRankIsAlive) {
  Desk desk(3);
  desk.JoinAll(0);
  desk.Arrive(1, 0, 1, wire::CALL_STEP, "s", 400 * kMillisecondNs);
  desk.Arrive(2, 1, 1, wire::CALL_STEP, "s", 300 * kMillisecondNs);
  EXPECT_EQ(desk.machine().next_time_ns(), 300 * kMillisecondNs);  // the earliest counts
  desk.At(300 * kMillisecondNs, TimeReached{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(2));
  EXPECT_THAT(desk.failure().what, HasSubstr("rank 2 did not come to step 's'"));
  EXPECT_THAT(desk.failure().cause, HasSubstr("alive by its heartbeats"));
  EXPECT_FALSE(desk.failure().next_step.empty());
}

TEST(Coordinator, DifferentCallsFailAfterAShortWaitThatShowsWhereAllAre) {
  Desk desk(4);
  desk.JoinAll(0);
  desk.Arrive(10, 2, 1, wire::CALL_STEP, "benchmark 7");
  desk.Arrive(20, 0, 1, wire::CALL_AGREE);
  desk.Arrive(30, 1, 1, wire::CALL_AGREE);
  EXPECT_FALSE(desk.machine().failure().has_value());
  desk.At(20 + kSettleNs, TimeReached{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(2));
  EXPECT_THAT(desk.failure().what,
              AllOf(HasSubstr("rank 2 is at step 'benchmark 7'"),
                    HasSubstr("ranks 0, 1 are at agreement"), HasSubstr("rank 3 not here yet")));
}

TEST(Coordinator, WindowCountsFromTheFirstArrival) {
  Desk desk(3);
  desk.JoinAll(0);
  desk.Arrive(100, 1, 1, wire::CALL_PRE_SYNC, "", INT64_MAX, 50);
  desk.Arrive(140, 0, 1, wire::CALL_PRE_SYNC, "", INT64_MAX, 5'000);
  EXPECT_EQ(desk.machine().next_time_ns(), 150);
  desk.At(150, TimeReached{});
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1, 2));
  EXPECT_FALSE(desk.sent()[0].frame->release().met());
  EXPECT_THAT(desk.sent()[0].frame->release().late_ranks(), ElementsAre(2));
  EXPECT_THAT(desk.logged(), ElementsAre(HasSubstr("rank 2 missed the pre-sync window")));
  // The others go on; the late rank is told first and then meets them.
  desk.Arrive(160, 0, 2, wire::CALL_STEP, "s");
  desk.Arrive(170, 2, 1, wire::CALL_PRE_SYNC, "", INT64_MAX, 50);
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(3));
  EXPECT_THAT(desk.sent()[0].frame->release().late_ranks(), ElementsAre(2));
  EXPECT_EQ(desk.sent()[0].frame->release().call(), 1u);
  desk.Arrive(180, 2, 2, wire::CALL_STEP, "s");
  desk.Arrive(190, 1, 2, wire::CALL_STEP, "s");
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_EQ(desk.sent()[0].frame->release().call(), 2u);
}

TEST(Coordinator, RankOwedAMissedPreSyncThatComesToSomethingElseIsNamed) {
  Desk desk(2);
  desk.JoinAll(0);
  desk.Arrive(0, 0, 1, wire::CALL_PRE_SYNC, "", INT64_MAX, 10);
  desk.At(10, TimeReached{});
  desk.Arrive(20, 1, 1, wire::CALL_STEP, "s");
  EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
  EXPECT_THAT(desk.failure().what, HasSubstr("rank 1 is at step 's'"));
}

TEST(Coordinator, CallOutOfTurnIsABrokenProtocol) {
  for (const uint64_t call : {0, 2, 99}) {
    Desk desk(2);
    desk.JoinAll(0);
    desk.Arrive(1, 1, call, wire::CALL_STEP, "s");
    EXPECT_THAT(desk.failure().ranks, ElementsAre(1)) << call;
    EXPECT_THAT(desk.failure().what, HasSubstr("broke the protocol")) << call;
  }
}

TEST(Coordinator, EndOfAConnectionNamesTheRankAndWhereItWas) {
  Desk desk(2);
  desk.JoinAll(0);
  desk.Arrive(1, 1, 1, wire::CALL_STEP, "s");
  desk.At(2, ConnectionEnded{2});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
  EXPECT_THAT(desk.failure().where, HasSubstr("waits in step 's'"));
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(1));
}

TEST(Coordinator, GoodbyeOfAllIsNoLoss) {
  Desk desk(2);
  desk.JoinAll(0);
  wire::Frame bye;
  bye.mutable_bye();
  desk.Frame(1, 2, bye);
  desk.At(2, ConnectionEnded{2});
  EXPECT_FALSE(desk.machine().everybody_gone());
  desk.Frame(3, 1, bye);
  EXPECT_TRUE(desk.machine().everybody_gone());
  EXPECT_FALSE(desk.machine().failure().has_value());
}

TEST(Coordinator, StopWhileOthersAreThereNamesRankZero) {
  Desk desk(2);
  desk.JoinAll(0);
  wire::Frame bye;
  bye.mutable_bye();
  desk.Frame(1, 1, bye);
  desk.At(2, StopAsked{});
  EXPECT_THAT(desk.failure().ranks, ElementsAre(0));
  // The end of the connection says nothing more.
  ASSERT_THAT(desk.sent(), SizeIs(2));
  EXPECT_TRUE(desk.sent()[0].frame->has_failure());
  EXPECT_TRUE(desk.sent()[1].frame->has_bye());
  EXPECT_THAT(desk.sent()[0].to, ElementsAre(2));
  EXPECT_THAT(desk.sent()[1].to, ElementsAre(2));
}

TEST(Coordinator, GiveUpOfARankReachesAllWithItsReason) {
  Desk desk(3);
  desk.JoinAll(0);
  wire::Frame give_up;
  give_up.mutable_give_up()->mutable_failure()->set_code(
      static_cast<int32_t>(ErrorCode::kRankLost));
  give_up.mutable_give_up()->mutable_failure()->set_what("nothing was heard from rank 0");
  give_up.mutable_give_up()->mutable_failure()->add_ranks(0);
  desk.Frame(1, 3, give_up);
  EXPECT_EQ(desk.failure().code, ErrorCode::kRankLost);
  EXPECT_THAT(desk.failure().ranks, ElementsAre(0));
  EXPECT_THAT(desk.failure().where, HasSubstr("as rank 2 saw it"));
}

TEST(Coordinator, CommonStartIsNotBeyondTheDeadline) {
  Desk desk(2);
  desk.JoinAll(0);
  for (int rank = 0; rank < 2; ++rank) {
    wire::Frame frame;
    frame.mutable_arrive()->set_call(1);
    frame.mutable_arrive()->set_kind(wire::CALL_STEP);
    frame.mutable_arrive()->set_name("s");
    frame.mutable_arrive()->set_deadline_left_ns(rank == 0 ? 4'900 : 8'900);
    frame.mutable_arrive()->set_start_delay_ns(rank == 0 ? 10 : INT64_MAX);
    desk.Frame(100, static_cast<ConnectionId>(rank) + 1, frame);
  }
  ASSERT_THAT(desk.sent(), SizeIs(1));
  EXPECT_EQ(desk.sent()[0].frame->release().start_left_ns(), 4'900);
}

// ---- Subgroups ----

wire::Frame Open(const std::string& name, const std::vector<int>& ranks) {
  wire::Frame frame;
  frame.mutable_arrive()->set_channel(name);
  frame.mutable_arrive()->set_kind(wire::CALL_OPEN);
  frame.mutable_arrive()->set_deadline_left_ns(INT64_MAX);
  for (const int rank : ranks) frame.mutable_arrive()->add_ranks(rank);
  return frame;
}

TEST(CoordinatorSubgroups, MembersThatListTheGroupDifferentlyAreNamed) {
  Desk desk(3);
  desk.JoinAll(0);
  desk.Frame(1, 1, Open("tp", {0, 1, 2}));
  desk.Frame(2, 2, Open("tp", {0, 1, 2}));
  desk.Frame(3, 3, Open("tp", {2, 1, 0}));
  EXPECT_THAT(desk.failure().ranks, ElementsAre(2));
  EXPECT_THAT(desk.failure().what, HasSubstr("'tp'"));
}

TEST(CoordinatorSubgroups, BadListsAreRefused) {
  const std::vector<std::vector<int>> bad = {{}, {0, 0, 1}, {0, 1, 3}, {-1, 1}, {0, 2}};
  for (const auto& ranks : bad) {
    Desk desk(3);
    desk.JoinAll(0);
    desk.Frame(1, 2, Open("tp", ranks));  // rank 1
    EXPECT_THAT(desk.failure().ranks, ElementsAre(1));
  }
}

TEST(CoordinatorSubgroups, ANameIsUsedOnce) {
  Desk desk(1);
  desk.JoinAll(0);
  desk.Frame(1, 1, Open("tp", {0}));
  ASSERT_THAT(desk.sent(), SizeIs(1));
  wire::Frame bye;
  bye.mutable_bye()->set_channel("tp");
  desk.Frame(2, 1, bye);
  desk.Frame(3, 1, Open("tp", {0}));
  EXPECT_THAT(desk.failure().what, HasSubstr("the name was used before"));
}

TEST(CoordinatorSubgroups, NumberThatIsOpenIsBounded) {
  Desk desk(1);
  desk.JoinAll(0);
  wire::Frame bye;
  // Those that were left do not count.
  for (uint64_t i = 0; i < 2 * kChannelsMax; ++i) {
    const std::string name = fmt::format("left {}", i);
    desk.Frame(1, 1, Open(name, {0}));
    bye.mutable_bye()->set_channel(name);
    desk.Frame(1, 1, bye);
    ASSERT_FALSE(desk.machine().failure().has_value()) << i;
  }
  for (uint64_t i = 1; i < kChannelsMax; ++i) {
    desk.Frame(1, 1, Open(fmt::format("open {}", i), {0}));
    ASSERT_FALSE(desk.machine().failure().has_value()) << i;
  }
  desk.Frame(2, 1, Open("one more", {0}));
  EXPECT_TRUE(desk.machine().failure().has_value());
}

}  // namespace
}  // namespace cotune::sync
