#include "core/ranks/step_record.h"

#include <thread>

#include "core/testing/scripted_ranks.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

// All ranks exchange one record each; what each of them got.
std::vector<Result<ExchangedRecords>> Exchange(const std::vector<StepRecord>& records,
                                               const std::string& step = "step",
                                               int64_t start_delay_ns = 0) {
  const int world_size = static_cast<int>(records.size());
  HubForTest hub(world_size);
  std::vector<Result<ExchangedRecords>> all(records.size(),
                                            Fail(ErrorCode::kInternal, "did not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      all[rank] = ExchangeRecords(*exchange, step, records[rank], start_delay_ns, INT64_MAX);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

// A record that takes exactly so many bytes when encoded with the four of its part count.
StepRecord RecordOfBytes(size_t bytes) {
  StepRecord record;
  record.items = {std::string(bytes, 'x')};
  const size_t overhead = EncodeStepRecord(record).size() + 4 - bytes;
  record.items = {std::string(bytes - overhead, 'x')};
  EXPECT_EQ(EncodeStepRecord(record).size() + 4, bytes);
  return record;
}

TEST(StepRecordTest, RecordsComeBackWhole) {
  StepRecord record;
  record.error = ErrorCode::kWrongResult;
  record.message = "three elements differ";
  record.wrong_elements = 3;
  record.start_ns = 5;
  record.end_ns = 90;
  record.number = -2;
  record.items = {"", "second"};
  const Result<StepRecord> decoded = DecodeStepRecord(EncodeStepRecord(record));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, record);
  EXPECT_EQ(*DecodeStepRecord(EncodeStepRecord(StepRecord{})), StepRecord{});
}

TEST(StepRecordTest, LongMessagesAreCutAndForeignBytesRefused) {
  StepRecord record;
  record.message = std::string(5000, 'x');
  EXPECT_EQ(DecodeStepRecord(EncodeStepRecord(record))->message.size(),
            StepRecord::kMessageBytesMax);
  EXPECT_FALSE(DecodeStepRecord("\xff\xff\xff").has_value());
  // An error code from a newer build.
  EXPECT_FALSE(DecodeStepRecord(std::string("\x08\x7f", 2)).has_value());
}

// Ranks 1 and 0 of a subgroup are ranks 3 and 6 of the job.
TEST(StepRecordTest, TheRanksOfASubgroupAreNamedAsInTheJob) {
  HubForTest hub(3);
  hub.job_ranks = {6, 3, 4};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      const Status own = rank == 2 ? Status() : Fail(ErrorCode::kEnvironment, "no memory");
      const auto all =
          ExchangeRecords(*exchange, "step", StepRecord::FromStatus(own), 0, INT64_MAX);
      ASSERT_TRUE(all.has_value()) << all.error().ToText();
      const std::optional<Error> failure = all->FirstFailure();
      ASSERT_TRUE(failure.has_value());
      EXPECT_EQ(failure->what, "ranks 6, 3: no memory");
      EXPECT_EQ(failure->ranks, (std::vector<int>{3, 6}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StepRecordTest, TheFirstFailureNamesEveryRankThatFailed) {
  ExchangedRecords all;
  all.records.resize(4);
  all.job_ranks = {0, 1, 2, 3};
  EXPECT_FALSE(all.FirstFailure().has_value());
  all.records[1] = StepRecord::FromStatus(Fail(ErrorCode::kDeadline, "late"));
  all.records[3] = StepRecord::FromStatus(Fail(ErrorCode::kAborted, "aborted"));
  const std::optional<Error> failure = all.FirstFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, ErrorCode::kDeadline);
  EXPECT_EQ(failure->what, "rank 1: late; rank 3: aborted");
  EXPECT_EQ(failure->ranks, (std::vector<int>{1, 3}));
  all.records[0] = StepRecord::FromStatus(Fail(ErrorCode::kDeadline, "late"));
  all.records[2] = all.records[3];
  EXPECT_EQ(all.FirstFailure()->what, "ranks 0, 1: late; ranks 2, 3: aborted");
  EXPECT_EQ(all.FirstFailure()->ranks, (std::vector<int>{0, 1, 2, 3}));
  all.records[0] = all.records[2] = StepRecord{};
  // A rank that was aborted does not know the cause.
  std::swap(all.records[1], all.records[3]);
  EXPECT_EQ(all.FirstFailure()->code, ErrorCode::kDeadline);
}

TEST(StepRecordTest, RecordsOfAnyLengthReachAllRanks) {
  constexpr size_t kStepBytes = RankExchange::kRecordBytesMax;
  StepRecord many;
  for (int i = 0; i < 4096; ++i) many.items.push_back(std::to_string(i) + std::string(200, 'y'));
  const std::vector<StepRecord> records = {RecordOfBytes(kStepBytes), StepRecord{}, many,
                                           RecordOfBytes(kStepBytes + 1)};
  for (const Result<ExchangedRecords>& all : Exchange(records, std::string(250, 'n'), 5)) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->records, records);
    EXPECT_EQ(all->start_ns, 1) << "the start that was asked for";
    // 4096 * 206 bytes: the hub's clock counts 13 steps.
    EXPECT_EQ(all->coordinator_now_ns, 13'000'000) << "the clock at the last step";
  }
}

TEST(StepRecordTest, RecordsThatFitTakeOneStep) {
  const StepRecord full = RecordOfBytes(RankExchange::kRecordBytesMax);
  for (const Result<ExchangedRecords>& all : Exchange({full, full, StepRecord{}})) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->coordinator_now_ns, 1'000'000);
    EXPECT_EQ(all->start_ns, 0);
  }
}

TEST(StepRecordTest, ARecordBeyondAllPartsIsAFailureThatAllRanksHear) {
  StepRecord longest;
  longest.items = {std::string(kStepRecordBytesMax - 5, 'x')};  // five of encoding: fits exactly
  ASSERT_EQ(EncodeStepRecord(longest).size(), kStepRecordBytesMax);
  StepRecord too_long = longest;
  too_long.items[0] += 'x';
  for (const Result<ExchangedRecords>& all : Exchange({longest, too_long})) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->records[0], longest);
    const std::optional<Error> failure = all->FirstFailure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->ranks, (std::vector<int>{1}));
    EXPECT_NE(failure->what.find("the record of step 'step' has 16777217 bytes"), std::string::npos)
        << failure->what;
  }
}

TEST(StepRecordTest, ForeignFirstPartsAreRefused) {
  for (const std::string& foreign :
       {std::string(), std::string("\1\0\0", 3), std::string(4, '\0'), std::string(4, '\xff')}) {
    HubForTest hub(2);
    std::thread peer([&] {
      EXPECT_TRUE(MakeExchangeForTest(hub, 1)->Step("step", foreign, 0, INT64_MAX).has_value());
    });
    const auto all =
        ExchangeRecords(*MakeExchangeForTest(hub, 0), "step", StepRecord{}, 0, INT64_MAX);
    peer.join();
    ASSERT_FALSE(all.has_value());
    EXPECT_EQ(all.error().what, "a step record of another rank cannot be read");
  }
}

// Returns what each of two ranks received of the bytes of rank 0.
std::vector<Result<std::string>> Broadcast(const std::string& bytes) {
  HubForTest hub(2);
  std::vector<Result<std::string>> got(2, Fail(ErrorCode::kInternal, "did not run"));
  std::thread peer([&] { got[1] = BroadcastInParts(*MakeExchangeForTest(hub, 1), "", INT64_MAX); });
  got[0] = BroadcastInParts(*MakeExchangeForTest(hub, 0), bytes, INT64_MAX);
  peer.join();
  return got;
}

TEST(BroadcastInPartsTest, BytesOfAnyNumberReachAllRanks) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, RankExchange::kProposalBytesMax - 4,
        RankExchange::kProposalBytesMax - 3, 2 * RankExchange::kProposalBytesMax + 5}) {
    std::string sent(bytes, 'x');
    for (size_t i = 0; i < bytes; i += 4096) sent[i] = static_cast<char>(i / 4096 % 251);
    for (const Result<std::string>& got : Broadcast(sent)) {
      ASSERT_TRUE(got.has_value()) << got.error().ToText();
      EXPECT_TRUE(*got == sent) << bytes;
    }
  }
}

TEST(BroadcastInPartsTest, TooManyBytesAreAnErrorOnAllRanks) {
  for (const Result<std::string>& got : Broadcast(std::string(kBroadcastBytesMax + 1, 'x'))) {
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().what, "rank 0 has more to tell than can be exchanged");
  }
}

}  // namespace
}  // namespace cotune
