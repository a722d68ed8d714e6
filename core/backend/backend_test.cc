#include "core/backend/backend.h"

#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// Goes on by a step each time it is read.
class SteppedClock final : public Clock {
 public:
  explicit SteppedClock(int64_t step_ns) : step_ns_(step_ns) {}
  int64_t now_ns() const override { return now_ns_ += step_ns_; }

 private:
  const int64_t step_ns_;
  mutable int64_t now_ns_ = 0;
};

// Is in progress for a number of turns.
class PlanOfTurns final : public Plan {
 public:
  explicit PlanOfTurns(int64_t turns) : turns_(turns) {}
  Status Launch(const LaunchArguments&) override { return {}; }
  Result<bool> Progress(int64_t until_ns) override {
    untils.push_back(until_ns);
    return turns_-- == 0;
  }
  std::vector<int64_t> untils;

 private:
  int64_t turns_;
};

LaunchArguments Until(int64_t deadline_ns) { return {nullptr, nullptr, nullptr, deadline_ns}; }

TEST(PlanTest, RunsUntilItIsDone) {
  PlanOfTurns plan(3);
  EXPECT_TRUE(plan.Run(Until(1'000'000'000), SteppedClock(1)));
  EXPECT_EQ(plan.untils, std::vector<int64_t>(4, 1'000'000'000));
}

TEST(PlanTest, OneThatIsNeverDoneEndsBehindItsDeadline) {
  PlanOfTurns plan(INT64_MAX);
  const Status ran = plan.Run(Until(1'000'000'000), SteppedClock(100'000'000));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kDeadline);
  EXPECT_NE(ran.error().ToText().find("still says that the call is in progress"),
            std::string::npos);
  // One turn more than the time has, to say who is missing.
  EXPECT_EQ(plan.untils.size(), 11u);
}

}  // namespace
}  // namespace cotune
