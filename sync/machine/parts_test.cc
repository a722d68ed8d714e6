// The small pure parts: frames, fields, votes, the store, failures as text.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sync/machine/agreement_round.h"
#include "sync/machine/job_clock.h"
#include "sync/machine/meeting.h"
#include "sync/machine/pre_sync_window.h"
#include "sync/machine/rendezvous.h"
#include "sync/machine/store.h"
#include "sync/wire/failure_text.h"
#include "sync/wire/frame_codec.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// ---- Frames ----

TEST(FrameCodec, LengthIsFourBytesLittleEndian) {
  wire::Frame frame;
  frame.mutable_release()->set_payload(std::string(300, 'p'));
  const std::string bytes = EncodeFrame(frame);
  const size_t size = bytes.size() - 4;
  EXPECT_EQ(static_cast<uint8_t>(bytes[0]), size % 256);
  EXPECT_EQ(static_cast<uint8_t>(bytes[1]), size / 256);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_EQ(bytes[3], 0);
}

TEST(FrameCodec, FramesComeOutWhereverTheStreamIsCut) {
  wire::Frame first;
  first.mutable_bye()->set_channel("a");
  wire::Frame second;
  second.mutable_heartbeat();
  wire::Frame third;
  third.mutable_release()->set_payload("ccc");
  const std::string stream = EncodeFrame(first) + EncodeFrame(second) + EncodeFrame(third);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader;
    std::vector<std::string> seen;
    for (const std::string& part : {stream.substr(0, cut), stream.substr(cut)}) {
      reader.Append(part);
      while (true) {
        const Result<FramePtr> frame = reader.Next(100);
        ASSERT_TRUE(frame.has_value());
        if (*frame == nullptr) break;
        seen.push_back((*frame)->SerializeAsString());
      }
    }
    EXPECT_THAT(seen, ElementsAre(first.SerializeAsString(), second.SerializeAsString(),
                                  third.SerializeAsString()));
  }
}

// Whatever the pieces are, no more is held than the frame that is not whole.
TEST(FrameCodec, HoldsNothingThatWasRead) {
  wire::Frame frame;
  frame.mutable_bye()->set_channel("abc");
  const std::string bytes = EncodeFrame(frame);
  FrameReader reader;
  std::string stream;
  for (int i = 0; i < 1000; ++i) stream += bytes;
  // Each piece ends inside the length of a frame.
  reader.Append(bytes.substr(0, 2));
  for (int i = 0; i < 1000; ++i) {
    reader.Append(stream.substr(2 + static_cast<size_t>(i) % 900 * bytes.size(), bytes.size()));
    while (true) {
      const Result<FramePtr> next = reader.Next(100);
      ASSERT_TRUE(next.has_value());
      if (*next == nullptr) break;
    }
    ASSERT_LE(reader.held_bytes(), bytes.size());
  }
}

TEST(FrameCodec, LengthIsRefusedOneBeyondTheLimitBeforeItsBytesCome) {
  wire::Frame frame;
  frame.mutable_bye()->set_channel("abc");
  const std::string bytes = EncodeFrame(frame);
  const uint64_t size = bytes.size() - 4;
  for (const uint64_t limit : {size + 1, size}) {
    FrameReader reader;
    reader.Append(bytes);
    EXPECT_TRUE(reader.Next(limit).has_value());
  }
  FrameReader reader;
  reader.Append(bytes.substr(0, 4));
  const Result<FramePtr> refused = reader.Next(size - 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().what, HasSubstr(fmt::format("{} are allowed", size - 1)));
}

TEST(FrameCodec, BytesThatAreNoFrameAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("\xff\xff\xff"), std::string(8, '\0')}) {
    FrameReader reader;
    reader.Append(std::string(1, static_cast<char>(body.size())) + std::string(3, '\0') + body);
    EXPECT_FALSE(reader.Next(100).has_value());
  }
}

// ---- Fields ----

Meeting MeetingWith(const std::vector<std::vector<std::pair<std::string, std::string>>>& fields,
                    std::vector<int> ranks) {
  Meeting meeting("", std::move(ranks));
  meeting.Open(1, 0);
  for (size_t i = 0; i < fields.size(); ++i) {
    wire::Arrive arrive;
    arrive.set_kind(wire::CALL_PRE_SYNC);
    for (const auto& [name, value] : fields[i]) {
      arrive.add_fields()->set_name(name);
      arrive.mutable_fields(arrive.fields_size() - 1)->set_value(value);
    }
    meeting.Arrive(i, std::move(arrive), 0);
  }
  return meeting;
}

TEST(CompareFields, EqualFieldsAreNoError) {
  const std::vector<int> ranks = {0, 1};
  EXPECT_FALSE(CompareFields(MeetingWith({{{"a", "1"}}, {{"a", "1"}}}, ranks), ranks).has_value());
  EXPECT_FALSE(CompareFields(MeetingWith({{}, {}}, ranks), ranks).has_value());
}

TEST(CompareFields, FirstDifferenceIsNamedAndTheMinorityIsOdd) {
  const std::vector<int> ranks = {0, 1, 2};
  const auto error = CompareFields(MeetingWith({{{"a", "1"}, {"b", "9"}, {"c", "x"}},
                                                {{"a", "1"}, {"b", "2"}, {"c", "y"}},
                                                {{"a", "1"}, {"b", "2"}, {"c", "z"}}},
                                               ranks),
                                   ranks);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kDisagreement);
  EXPECT_THAT(error->ranks, ElementsAre(0));
  EXPECT_THAT(error->what, AllOf(HasSubstr("'b'"), HasSubstr("rank 0 has '9'"),
                                 HasSubstr("ranks 1, 2 have '2'")));
}

TEST(CompareFields, TwoRanksTheLowerOneCountsAsRight) {
  const std::vector<int> ranks = {4, 7};
  const auto error = CompareFields(MeetingWith({{{"a", "1"}}, {{"a", "2"}}}, ranks), ranks);
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->ranks, ElementsAre(7));
}

TEST(CompareFields, MissingFieldAndOtherNameAreDifferences) {
  const std::vector<int> ranks = {0, 1, 2};
  const auto missing = CompareFields(MeetingWith({{{"a", "1"}}, {{"a", "1"}}, {}}, ranks), ranks);
  ASSERT_TRUE(missing.has_value());
  EXPECT_THAT(missing->ranks, ElementsAre(2));
  EXPECT_THAT(missing->what, HasSubstr("'(not given)'"));
  const auto renamed =
      CompareFields(MeetingWith({{{"a", "1"}}, {{"b", "1"}}, {{"a", "1"}}}, ranks), ranks);
  ASSERT_TRUE(renamed.has_value());
  EXPECT_THAT(renamed->ranks, ElementsAre(1));
  EXPECT_THAT(renamed->what, HasSubstr("b=1"));
}

TEST(MissedWindows, EachLateRankIsToldOnce) {
  MissedWindows missed;
  missed.Add(3, {1, 4});
  EXPECT_FALSE(missed.Tell(3, 0).has_value());
  EXPECT_FALSE(missed.Tell(2, 1).has_value());
  EXPECT_THAT(*missed.Tell(3, 1), ElementsAre(1, 4));
  EXPECT_FALSE(missed.Tell(3, 1).has_value());
  EXPECT_THAT(missed.OldestLateRanks(), ElementsAre(4));
  EXPECT_THAT(*missed.Tell(3, 4), ElementsAre(1, 4));
  EXPECT_EQ(missed.size(), 0u);
}

// ---- Votes ----

TEST(AgreementRound, CommitsOnTheLastYesAndGoesOnTheLastAcknowledgement) {
  using Next = AgreementRound::Next;
  AgreementRound round;
  round.Start(3);
  EXPECT_EQ(round.OnVote(0, true), Next::kNothing);
  EXPECT_EQ(round.OnVote(0, true), Next::kNothing);   // a second vote is no second rank
  EXPECT_EQ(round.OnAcknowledge(1), Next::kNothing);  // nothing to acknowledge yet
  EXPECT_EQ(round.OnVote(2, true), Next::kNothing);
  EXPECT_THAT(round.WaitsFor(), ElementsAre(1));
  EXPECT_EQ(round.OnVote(1, true), Next::kCommit);
  EXPECT_EQ(round.OnVote(1, false), Next::kNothing);  // too late: COMMIT is out
  EXPECT_EQ(round.OnAcknowledge(0), Next::kNothing);
  EXPECT_EQ(round.OnAcknowledge(0), Next::kNothing);
  EXPECT_EQ(round.OnAcknowledge(1), Next::kNothing);
  EXPECT_EQ(round.OnAcknowledge(2), Next::kGo);
}

TEST(AgreementRound, OneNoDeclinesForEver) {
  using Next = AgreementRound::Next;
  AgreementRound round;
  round.Start(2);
  EXPECT_EQ(round.OnVote(0, false), Next::kDecline);
  EXPECT_EQ(round.OnVote(0, true), Next::kNothing);
  EXPECT_EQ(round.OnVote(1, true), Next::kNothing);
  EXPECT_EQ(round.phase(), AgreementRound::Phase::kDeclined);
}

// ---- Store ----

wire::StoreRequest Request(wire::StoreOperation operation, const std::string& key,
                           const std::string& value = "", int64_t deadline_left_ns = INT64_MAX,
                           uint64_t number = 1) {
  wire::StoreRequest request;
  request.set_request(number);
  request.set_operation(operation);
  request.set_key(key);
  request.set_value(value);
  request.set_deadline_left_ns(deadline_left_ns);
  return request;
}

TEST(Store, WaitersAreAnsweredByThePutInOrder) {
  Store store;
  EXPECT_THAT(store.OnRequest(1, Request(wire::STORE_GET, "k", "", 100, 7), 0), SizeIs(0));
  EXPECT_THAT(store.OnRequest(2, Request(wire::STORE_GET, "k", "", 200, 8), 0), SizeIs(0));
  EXPECT_EQ(store.next_time_ns(), 100);
  const auto replies = store.OnRequest(0, Request(wire::STORE_PUT, "k", "v"), 50);
  ASSERT_THAT(replies, SizeIs(3));
  EXPECT_EQ(replies[1].rank, 1);
  EXPECT_EQ(replies[1].frame->store_reply().request(), 7u);
  EXPECT_EQ(replies[1].frame->store_reply().value(), "v");
  EXPECT_EQ(replies[2].rank, 2);
  EXPECT_EQ(store.next_time_ns(), INT64_MAX);
}

TEST(Store, AGetHasTheTimeThatIsLeftFromItsArrivalOn) {
  Store store;
  store.OnRequest(1, Request(wire::STORE_GET, "k", "", 100), 5'000);
  EXPECT_EQ(store.next_time_ns(), 5'100);
  EXPECT_THAT(store.OnRequest(1, Request(wire::STORE_GET, "k", "", -1, 2), 5'000), SizeIs(1));
}

TEST(Store, GetEndsAtItsDeadline) {
  Store store;
  store.OnRequest(1, Request(wire::STORE_GET, "k", "", 100), 0);
  EXPECT_THAT(store.OnTime(99), SizeIs(0));
  const auto replies = store.OnTime(100);
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(ErrorFromFailure(replies[0].frame->store_reply().failure()).code, ErrorCode::kDeadline);
}

TEST(Store, BytesAreBoundedAndDeletingFreesThem) {
  Store store;
  const std::string value(RankExchange::kRecordBytesMax, 'v');
  const uint64_t fit = kStoreBytesMax / (value.size() + 8);  // keys of 8 characters
  for (uint64_t i = 0; i < fit; ++i) {
    const auto replies =
        store.OnRequest(0, Request(wire::STORE_PUT, fmt::format("{:08}", i), value), 0);
    ASSERT_FALSE(replies[0].frame->store_reply().has_failure()) << i;
  }
  const auto full = [&] {
    return store.OnRequest(0, Request(wire::STORE_PUT, "too much", value), 0)[0]
        .frame->store_reply()
        .has_failure();
  };
  EXPECT_TRUE(full());
  store.OnRequest(0, Request(wire::STORE_DELETE, "00000000"), 0);
  EXPECT_FALSE(full());
}

TEST(Store, WaitersOfARankAreBounded) {
  Store store;
  for (uint64_t i = 0; i < kStoreWaitersPerRankMax; ++i) {
    ASSERT_THAT(store.OnRequest(3, Request(wire::STORE_GET, fmt::format("{}", i)), 0), SizeIs(0));
  }
  EXPECT_THAT(store.OnRequest(3, Request(wire::STORE_GET, "more"), 0), SizeIs(1));
  EXPECT_THAT(store.OnRequest(4, Request(wire::STORE_GET, "more"), 0), SizeIs(0));
  store.OnLeft(3);
  EXPECT_THAT(store.OnRequest(3, Request(wire::STORE_GET, "more"), 0), SizeIs(0));
}

// ---- Rendezvous and failures ----

TEST(CheckHello, EachFieldIsNamed) {
  const JobIdentity job{4, "job", "1.0"};
  EXPECT_FALSE(CheckHello(job, MakeHello(job, 3, 0)).has_value());
  EXPECT_THAT(CheckHello(job, MakeHello({5, "job", "1.0"}, 2, 0))->what,
              HasSubstr("rank 2 has world size 5, rank 0 has 4"));
  EXPECT_THAT(CheckHello(job, MakeHello({4, "jab", "1.0"}, 2, 0))->what, HasSubstr("job id 'jab'"));
  EXPECT_THAT(CheckHello(job, MakeHello({4, "job", "1.1"}, 2, 0))->what,
              HasSubstr("code version '1.1'"));
  EXPECT_THAT(CheckHello(job, MakeHello(job, 4, 0))->what, HasSubstr("outside of world size 4"));
  EXPECT_THAT(CheckHello(job, MakeHello(job, -1, 0))->ranks, ElementsAre(-1));
  wire::Hello other = MakeHello(job, 1, 0);
  other.set_protocol(kProtocolVersion + 1);
  EXPECT_THAT(CheckHello(job, other)->what, HasSubstr("protocol version"));
}

// ---- Times ----

TEST(LeftNs, DeadlinesKeepTheirEnds) {
  EXPECT_EQ(LeftNs(100, 30), 70);
  EXPECT_EQ(LeftNs(30, 100), -70);
  EXPECT_EQ(LeftNs(INT64_MAX, 100), INT64_MAX);
  EXPECT_EQ(LeftNs(INT64_MIN, 100), INT64_MIN);
  EXPECT_EQ(LeftNs(INT64_MAX - 1, -100), INT64_MAX);
}

TEST(JobClock, TheShortestRoundTripCountsUntilItIsTooOld) {
  JobClock clock;
  // The job began at 10'000 on this clock; one way takes 50 ns, the other 150.
  clock.OnRoundTrip({20'000, 20'260, 60, 10'110});
  EXPECT_EQ(clock.begin_ns(), 10'050);
  EXPECT_EQ(clock.ErrorNs(20'260), 101);
  clock.OnRoundTrip({30'000, 40'000, 0, 29'000});
  EXPECT_EQ(clock.begin_ns(), 10'050) << "a longer one says less";
  clock.OnRoundTrip({50'000, 50'020, 0, 40'005});
  EXPECT_EQ(clock.begin_ns(), 10'005);
  const int64_t later_ns = 50'020 + 200 * JobClock::kDriftMax;
  EXPECT_EQ(clock.ErrorNs(later_ns), 11 + 200);
  clock.OnRoundTrip({later_ns - 300, later_ns, 0, later_ns - 9'900});
  EXPECT_EQ(clock.begin_ns(), 9'750) << "the clocks may have drifted since";
}

TEST(FailureText, ErrorsSurviveTheWire) {
  const Error error{ErrorCode::kRankLost, "what", "where", "cause", "next", {1, 5}};
  const Error back = ErrorFromFailure(FailureFromError(error));
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.ToText(), error.ToText());
  EXPECT_EQ(back.ranks, error.ranks);
  wire::Failure unknown;
  unknown.set_code(999);
  EXPECT_EQ(ErrorFromFailure(unknown).code, ErrorCode::kInternal);
  EXPECT_FALSE(ErrorFromFailure(unknown).what.empty());
}

TEST(FailureText, ListsAndQuotesAreBounded) {
  EXPECT_EQ(RankList(std::vector<int>{2}), "rank 2");
  EXPECT_EQ(RankList(std::vector<int>{0, 1, 3}), "ranks 0, 1, 3");
  EXPECT_THAT(RankList(std::vector<int>(20, 1)), HasSubstr("... and 4 more"));
  EXPECT_EQ(Quoted("a\nb\x7f"), "'a?b?'");
  EXPECT_EQ(Quoted(std::string(121, 'x')).size(), 120u + 5u);
  EXPECT_EQ(DurationText(350'000'000), "350 ms");
  EXPECT_EQ(DurationText(2'000'000'000), "2.0 s");
}

}  // namespace
}  // namespace cotune::sync
