#include "core/base/failure_line.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

class LastFailure final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    failure_ = FailureOfLine(event);
    severity_ = event.severity;
  }
  std::optional<ErrorCode> failure_;
  Severity severity_ = Severity::kDebug;
};

TEST(FailureLineTest, ALineKeepsTheCodeOfItsFailure) {
  LastFailure last;
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kRankLost}) {
    EmitFailureLine(last, code, "the job has failed");
    EXPECT_EQ(last.failure_, code);
    EXPECT_EQ(last.severity_, Severity::kError);
  }
}

TEST(FailureLineTest, OtherEventsAreAboutNoFailure) {
  LastFailure last;
  last.failure_ = ErrorCode::kRankLost;
  EmitLine(last, Severity::kError, "the job has failed");
  EXPECT_EQ(last.failure_, std::nullopt);
  last.failure_ = ErrorCode::kRankLost;
  last.OnEvent({.type = EventType::kCounter, .name = kSampleCounter, .value = 6});
  EXPECT_EQ(last.failure_, std::nullopt);
}

}  // namespace
}  // namespace cotune
