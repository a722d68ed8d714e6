#include <vector>

#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "core/base/clock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr int64_t kCallNs = 1000;

// Moves when a plan runs, and by 1 ns whenever it is read exactly.
class TestClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_++; }
  int64_t coarse_now_ns() const override { return now_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  mutable int64_t now_ns_ = 0;
};

class CountingPlan final : public Plan {
 public:
  explicit CountingPlan(TestClock& clock) : clock_(clock) {}
  Status Launch(const LaunchArguments& arguments) override {
    sends.push_back(arguments.send);
    clock_.Advance(kCallNs);
    if (static_cast<int>(sends.size()) == failing_call) return Fail(ErrorCode::kAborted, "ended");
    return {};
  }
  Result<bool> Progress(int64_t /*until_ns*/) override { return true; }

  std::vector<const void*> sends;
  int failing_call = 0;

 private:
  TestClock& clock_;
};

class HostCallsTest : public testing::Test {
 protected:
  Result<TimedSpan> Run(int32_t repetitions, int64_t start_ns, int64_t deadline_ns = INT64_MAX) {
    const std::unique_ptr<Device> device = MakeHostDevice(clock_);
    LaunchArguments arguments;
    arguments.send = &data_;
    COTUNE_TRY(auto calls, device->Prepare(plan_, {&arguments, 1}, repetitions));
    return calls->Run(start_ns, deadline_ns);
  }

  TestClock clock_;
  CountingPlan plan_{clock_};
  int data_ = 0;
};

TEST_F(HostCallsTest, ACallThatIsNotTimedGoesBeforeSeveral) {
  const Result<TimedSpan> span = Run(4, 0);
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(plan_.sends, std::vector<const void*>(5, &data_));
  EXPECT_GE(span->start_ns, kCallNs);
  EXPECT_EQ(span->end_ns - span->start_ns, 4 * kCallNs + 1);
}

TEST_F(HostCallsTest, OneCallIsTheFirst) {
  const Result<TimedSpan> span = Run(1, 0);
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(plan_.sends.size(), 1u);
  EXPECT_EQ(span->start_ns, 0);
}

TEST_F(HostCallsTest, TheStartTimeHoldsForTheTimedCalls) {
  const Result<TimedSpan> span = Run(2, 5000);
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(span->start_ns, 5000);
  EXPECT_EQ(span->end_ns, 5001 + 2 * kCallNs);
}

// Without an end of its own the clock of this test would be read for centuries.
TEST_F(HostCallsTest, AStartBehindTheDeadlineIsNotWaitedFor) {
  const Result<TimedSpan> span = Run(2, INT64_MAX, 5000);
  ASSERT_FALSE(span.has_value());
  EXPECT_EQ(span.error().code, ErrorCode::kDeadline);
  EXPECT_TRUE(plan_.sends.empty());
}

TEST_F(HostCallsTest, AFailureOfTheCallThatIsNotTimedEndsTheSample) {
  plan_.failing_call = 1;
  const Result<TimedSpan> span = Run(3, 0);
  ASSERT_FALSE(span.has_value());
  EXPECT_EQ(span.error().code, ErrorCode::kAborted);
  EXPECT_EQ(plan_.sends.size(), 1u);
}

}  // namespace
}  // namespace cotune
