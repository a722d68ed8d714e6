#include "core/step_record.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

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

TEST(StepRecordTest, TheFirstFailureNamesEveryRankThatFailed) {
  ExchangedRecords all;
  all.records.resize(4);
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
  // Who was aborted says nothing of the cause.
  std::swap(all.records[1], all.records[3]);
  EXPECT_EQ(all.FirstFailure()->code, ErrorCode::kDeadline);
}

}  // namespace
}  // namespace cotune
