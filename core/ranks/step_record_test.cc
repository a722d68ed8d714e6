#include "core/ranks/step_record.h"

#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/testing/scripted_ranks.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

// All ranks exchange one record each; what each of them got.
template <typename Message>
std::vector<Result<ExchangedRecords<Message>>> Exchange(
    const std::vector<StepRecord<Message>>& records, const std::string& step = "step",
    int64_t start_delay_ns = 0) {
  const int world_size = static_cast<int>(records.size());
  HubForTest hub(world_size);
  std::vector<Result<ExchangedRecords<Message>>> all(records.size(),
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

size_t EncodedBytes(const StepRecord<ChoiceTexts>& record) {
  return EncodeStepRecord({record.failure, record.message}).size();
}

StepRecord<ChoiceTexts> RecordOf(std::vector<std::string> choices) {
  return {std::nullopt, {std::move(choices)}};
}

// A record that takes exactly so many bytes when encoded.
StepRecord<ChoiceTexts> RecordOfBytes(size_t bytes) {
  const size_t overhead = EncodedBytes(RecordOf({std::string(bytes, 'x')})) - bytes;
  StepRecord<ChoiceTexts> record = RecordOf({std::string(bytes - overhead, 'x')});
  EXPECT_EQ(EncodedBytes(record), bytes);
  return record;
}

// One statement a message: in one list of all of them, GCC unwinds each with all others, for which
// it takes 19 GB under sanitizers.
std::vector<StepMessage> MakeMessagesOfAllTypes() {
  std::vector<StepMessage> messages;
  messages.emplace_back(Done{});
  messages.emplace_back(HostOfRank{"5f0c"});
  messages.emplace_back(BackendList{-5, {"host 1.0", ""}, {"cuda 1.0"}});
  messages.emplace_back(GroupOfRank{{"", "tcp/eth0", "\xff"}});
  messages.emplace_back(MemoryToRegister{UINT64_MAX});
  messages.emplace_back(GpuOfRank{50 << 20, "GPU-1", true});
  messages.emplace_back(TableWish{true});
  messages.emplace_back(ProcessorsOfRank{"0-3"});
  messages.emplace_back(TuneDigests{{1, 0}, {UINT64_MAX, 0, 2}});
  messages.emplace_back(FieldText{"setting numerics", "same"});
  messages.emplace_back(NodeText{"all_reduce at 64 bytes"});
  messages.emplace_back(ChoiceListDigests{{0, UINT64_MAX}});
  messages.emplace_back(ChoiceTexts{{"host/a as its default", "host/b"}});
  messages.emplace_back(WinnerFailures{{{7, true, "no"}, {0, false, ""}}});
  messages.emplace_back(CellBuffers{true, 9, true});
  messages.emplace_back(PreparedChoices{{"", "not here"}});
  messages.emplace_back(CheckedCall{{5, 90}, 3, "wrong values", {UINT64_MAX, 0}});
  messages.emplace_back(WarmCalls{{-1, 4}});
  messages.emplace_back(TakenSamples{
      {{{INT64_MIN, INT64_MAX}, {}}, {{0, 0}, StepFailure{ErrorCode::kDeadline, "late"}}}});
  messages.emplace_back(ClockReading{1980, {"hw_thermal"}});
  messages.emplace_back(ProcessorUse{"0-3", 1, INT64_MAX, 7});
  messages.emplace_back(
      TraceOfRank{{"", "warm", "host/a"},
                  {{EventType::kBegin, SpanKind::kCompile, 3, 1, 0, 2, INT64_MAX, 7},
                   {EventType::kCounter, SpanKind::kStage, 0, 1, 1, 1, 1, INT64_MIN}},
                  12});
  return messages;
}

const std::vector<StepMessage>& MessagesOfAllTypes() {
  static const std::vector<StepMessage> messages = MakeMessagesOfAllTypes();
  return messages;
}

TEST(StepRecordTest, MessagesOfEveryTypeComeBackWholeAlsoWithAFailure) {
  ASSERT_EQ(MessagesOfAllTypes().size(), std::variant_size_v<StepMessage>);
  for (size_t type = 0; type < MessagesOfAllTypes().size(); ++type) {
    const StepMessage& message = MessagesOfAllTypes()[type];
    ASSERT_EQ(message.index(), type);
    for (const auto& failure :
         {std::optional<StepFailure>(), std::optional(StepFailure{ErrorCode::kWrongResult, "x"})}) {
      const AnyStepRecord record{failure, message};
      const Result<AnyStepRecord> decoded = DecodeStepRecord(EncodeStepRecord(record));
      ASSERT_TRUE(decoded.has_value()) << type;
      EXPECT_TRUE(*decoded == record) << type;
    }
  }
}

TEST(StepRecordTest, AMessageOfAnotherStepIsAnErrorThatNamesRankAndBothSteps) {
  for (const StepMessage& message : MessagesOfAllTypes()) {
    if (std::holds_alternative<TakenSamples>(message)) continue;
    HubForTest hub(2);
    hub.job_ranks = {4, 7};
    // The name of the step is the same: only the message tells that the ranks have parted.
    std::thread peer([&] {
      EXPECT_TRUE(ExchangeEncoded(*MakeExchangeForTest(hub, 1), "cell 0 3 host/a",
                                  AnyStepRecord{std::nullopt, message}, 0, INT64_MAX)
                      .has_value());
    });
    const auto all = ExchangeRecords(*MakeExchangeForTest(hub, 0), "cell 0 3 host/a",
                                     StepRecord<TakenSamples>{}, 0, INT64_MAX);
    peer.join();
    ASSERT_FALSE(all.has_value());
    EXPECT_EQ(all.error().code, ErrorCode::kInternal);
    EXPECT_EQ(all.error().ranks, std::vector<int>{7});
    EXPECT_EQ(all.error().where, "cell 0 3 host/a");
    const std::string name(std::visit([](const auto& each) { return each.kName; }, message));
    EXPECT_EQ(all.error().what, "the ranks are at different steps: rank 7 sent '" + name +
                                    "' where this rank expects 'samples'");
  }
}

TEST(StepRecordTest, LongTextsAreCutAndForeignBytesRefused) {
  const AnyStepRecord record{StepFailure{ErrorCode::kInternal, std::string(5000, 'x')}, Done{}};
  EXPECT_EQ(DecodeStepRecord(EncodeStepRecord(record))->failure->text.size(),
            StepFailure::kTextBytesMax);
  const AnyStepRecord words{
      StepFailure{ErrorCode::kInternal, std::string(990, 'x') + " allocation failed"}, Done{}};
  EXPECT_EQ(DecodeStepRecord(EncodeStepRecord(words))->failure->text,
            std::string(990, 'x') + "...");
  EXPECT_FALSE(DecodeStepRecord("\xff\xff\xff").has_value());
  EXPECT_FALSE(DecodeStepRecord("").has_value()) << "every step has a message";
  // An error code and a message from a newer build: a field 127 with nothing in it.
  const std::string done = EncodeStepRecord({std::nullopt, Done{}});
  EXPECT_TRUE(DecodeStepRecord(done).has_value());
  EXPECT_FALSE(DecodeStepRecord(std::string("\x08\x7f", 2) + done).has_value());
  EXPECT_FALSE(DecodeStepRecord(std::string("\xfa\x07\x00", 3)).has_value());
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
          ExchangeRecords(*exchange, "step", StepRecord<Done>::FromStatus(own), 0, INT64_MAX);
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
  ExchangedRecords<Done> all;
  all.records.resize(4);
  all.job_ranks = {0, 1, 2, 3};
  EXPECT_FALSE(all.FirstFailure().has_value());
  all.records[1] = StepRecord<Done>::FromStatus(Fail(ErrorCode::kDeadline, "late"));
  all.records[3] = StepRecord<Done>::FromStatus(Fail(ErrorCode::kAborted, "aborted"));
  const std::optional<Error> failure = all.FirstFailure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, ErrorCode::kDeadline);
  EXPECT_EQ(failure->what, "rank 1: late; rank 3: aborted");
  EXPECT_EQ(failure->ranks, (std::vector<int>{1, 3}));
  all.records[0] = StepRecord<Done>::FromStatus(Fail(ErrorCode::kDeadline, "late"));
  all.records[2] = all.records[3];
  EXPECT_EQ(all.FirstFailure()->what, "ranks 0, 1: late; ranks 2, 3: aborted");
  EXPECT_EQ(all.FirstFailure()->ranks, (std::vector<int>{0, 1, 2, 3}));
  all.records[0] = all.records[2] = StepRecord<Done>{};
  // A rank that was aborted does not know the cause.
  std::swap(all.records[1], all.records[3]);
  EXPECT_EQ(all.FirstFailure()->code, ErrorCode::kDeadline);
}

TEST(StepRecordTest, NoTextOfARankStandsTwice) {
  const std::vector<int> ranks = {4, 5, 6};
  EXPECT_EQ(TextOfRanks({"", "", ""}, ranks, 100), "");
  EXPECT_EQ(TextOfRanks({"no memory", "", "no memory"}, ranks, 100), "ranks 4, 6: no memory");
  const std::string_view repeated = "job rank 4 (rank 0 of the group): no memory (backend cuda)";
  EXPECT_EQ(TextOfRanks({"no memory (backend cuda)", repeated, repeated}, ranks, 100),
            "rank 4: no memory (backend cuda)");
  EXPECT_EQ(TextOfRanks({"", repeated, repeated}, ranks, 100),
            fmt::format("ranks 5, 6: {}", repeated));
  EXPECT_EQ(TextOfRanks({"memory", "no memory", "out of: memory"}, ranks, 100),
            "rank 4: memory; rank 5: no memory; rank 6: out of: memory")
      << "these name no rank";
}

TEST(StepRecordTest, ATextOfAllThatNamesRanksStandsAlone) {
  const std::string_view named = "no backend takes it: cuda: rank 5: no memory";
  EXPECT_EQ(TextOfRanks({named, named}, {4, 5}, 100), named);
  EXPECT_EQ(TextOfRanks({named, ""}, {4, 5}, 100), fmt::format("rank 4: {}", named));
  EXPECT_EQ(TextOfRanks({named}, {4}, 100), fmt::format("rank 4: {}", named));
  EXPECT_EQ(TextOfRanks({"no rank fits", "no rank fits"}, {4, 5}, 100), "ranks 4, 5: no rank fits");
}

TEST(StepRecordTest, ManyTextsOfRanksAreCut) {
  EXPECT_EQ(TextOfRanks({"a long one", "another", "a third"}, {0, 1, 2}, 20),
            "rank 0: a long one; rank 1: another; and others");
}

TEST(StepRecordTest, RecordsOfAnyLengthReachAllRanks) {
  constexpr size_t kStepBytes = RankExchange::kRecordBytesMax;
  std::vector<std::string> many;
  for (int i = 0; i < 4096; ++i) many.push_back(std::to_string(i) + std::string(200, 'y'));
  // The first part has four bytes for the number of parts.
  const std::vector<StepRecord<ChoiceTexts>> records = {
      RecordOfBytes(kStepBytes - 4), RecordOf({}), RecordOf(many), RecordOfBytes(kStepBytes - 3)};
  for (const auto& all : Exchange(records, std::string(250, 'n'), 5)) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->records, records);
    EXPECT_EQ(all->start_elapsed_ns, 1) << "the start that was asked for";
    // 4096 * 206 bytes: the hub's clock counts 13 steps.
    EXPECT_EQ(all->elapsed_ns, 13'000'000) << "the clock at the last step";
  }
}

TEST(StepRecordTest, RecordsThatFitTakeOneStep) {
  const StepRecord<ChoiceTexts> full = RecordOfBytes(RankExchange::kRecordBytesMax - 4);
  for (const auto& all : Exchange<ChoiceTexts>({full, full, RecordOf({})})) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->elapsed_ns, 1'000'000);
    EXPECT_EQ(all->start_elapsed_ns, 0);
  }
}

TEST(StepRecordTest, ANameOfAnyLengthIsCutToWhatAnExchangeTakes) {
  const StepRecord<ChoiceTexts> two_parts = RecordOfBytes(RankExchange::kRecordBytesMax + 1);
  for (const auto& all : Exchange<ChoiceTexts>(
           {two_parts, RecordOf({"a"})}, std::string(RankExchange::kStepNameBytesMax + 1, 'n'))) {
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    EXPECT_EQ(all->records, (std::vector{two_parts, RecordOf({"a"})}));
  }
}

TEST(StepRecordTest, ARecordBeyondAllPartsIsAFailureThatAllRanksHear) {
  const StepRecord<ChoiceTexts> longest = RecordOfBytes(kStepRecordBytesMax);
  StepRecord<ChoiceTexts> too_long = longest;
  too_long.message.choices[0] += 'x';
  for (const auto& all : Exchange<ChoiceTexts>({longest, too_long})) {
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
        ExchangeRecords(*MakeExchangeForTest(hub, 0), "step", StepRecord<Done>{}, 0, INT64_MAX);
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
