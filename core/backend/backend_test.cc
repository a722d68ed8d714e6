#include "core/backend/backend.h"

#include <functional>
#include <string>
#include <utility>
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

constexpr int64_t kMs = 1'000'000;

// Says in each turn what the test has it say.
class ScriptedPlan final : public Plan {
 public:
  using Turn = std::function<Result<bool>(const ScriptedPlan&)>;
  explicit ScriptedPlan(Turn turn) : turn_(std::move(turn)) {}
  Status Launch(const LaunchArguments&) override { return {}; }
  Result<bool> Progress(int64_t) override {
    ++turns;
    if (IsAborted()) ++turns_after_abort;
    return turn_(*this);
  }
  void Abort() override { ++aborts; }
  bool IsAborted() const override { return aborts > 0 || is_aborted_by_others; }
  int turns = 0;
  int turns_after_abort = 0;
  int aborts = 0;
  bool is_aborted_by_others = false;

 private:
  const Turn turn_;
};

Result<bool> InProgress(const ScriptedPlan&) { return false; }

TEST(PlanTest, HasAnEighthOfItsTimeAfterTheDeadlineToNameTheLateRank) {
  EXPECT_EQ(LatestEndNs(100, 100 + 1000 * kMs), 100 + 1225 * kMs);
  EXPECT_EQ(LatestEndNs(100, 100 + 4000 * kMs), 100 + 4600 * kMs);
  EXPECT_EQ(LatestEndNs(100, 100 + 600'000 * kMs), 100 + 600'600 * kMs);
  EXPECT_EQ(LatestEndNs(1000 * kMs, 100 * kMs), 200 * kMs);
  EXPECT_EQ(LatestEndNs(100, INT64_MAX), INT64_MAX);
}

TEST(PlanTest, HandsOnTheRankThatIsNamedAfterTheDeadline) {
  const SteppedClock clock(10 * kMs);
  int turns = 0;
  ScriptedPlan plan([&](const ScriptedPlan&) -> Result<bool> {
    // 120 ms after the deadline: later than 100 ms, and earlier than an eighth of a second.
    if (++turns < 112) return false;
    return Fail(ErrorCode::kRankLost, "rank 3 did not come", "", "", "", {3});
  });
  const Status ran = plan.Run(Until(1000 * kMs), clock);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kRankLost);
  EXPECT_EQ(ran.error().ranks, std::vector<int>{3});
  EXPECT_EQ(plan.aborts, 0);
}

TEST(PlanTest, OneThatIsNotDoneIsAbortedAndAskedUntilItHasEnded) {
  ScriptedPlan plan([](const ScriptedPlan& self) -> Result<bool> {
    if (self.turns_after_abort < 5) return false;
    return Fail(ErrorCode::kAborted, "the group was aborted");
  });
  const Status ran = plan.Run(Until(1000 * kMs), SteppedClock(10 * kMs));
  ASSERT_FALSE(ran);
  EXPECT_TRUE(IsStillInProgress(ran.error())) << ran.error().ToText();
  EXPECT_EQ(ran.error().ToText().find(kBuffersStayInUse), std::string::npos);
  EXPECT_EQ(plan.aborts, 1);
  EXPECT_EQ(plan.turns_after_abort, 5);
}

TEST(PlanTest, ARankThatIsNamedOnlyAfterTheAbortIsHandedOn) {
  ScriptedPlan plan([](const ScriptedPlan& self) -> Result<bool> {
    if (self.aborts == 0) return false;
    return Fail(ErrorCode::kRankLost, "rank 3 did not come", "", "", "", {3});
  });
  const Status ran = plan.Run(Until(1000 * kMs), SteppedClock(10 * kMs));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().ranks, std::vector<int>{3});
}

TEST(PlanTest, OneThatNothingEndsSaysThatItsBuffersStayInUse) {
  ScriptedPlan plan(InProgress);
  const Status ran = plan.Run(Until(1000 * kMs), SteppedClock(10 * kMs));
  ASSERT_FALSE(ran);
  EXPECT_TRUE(IsStillInProgress(ran.error()));
  EXPECT_NE(ran.error().ToText().find("still says that the call is in progress"),
            std::string::npos);
  EXPECT_NE(ran.error().ToText().find(kBuffersStayInUse), std::string::npos);
  EXPECT_EQ(plan.aborts, 1);
  EXPECT_GE(plan.turns_after_abort, 90);
}

TEST(PlanTest, OneThatOthersAbortIsAskedUntilItHasEnded) {
  ScriptedPlan plan([](const ScriptedPlan& self) -> Result<bool> {
    if (self.turns < 50) return false;
    return Fail(ErrorCode::kAborted, "rank 2 aborted the group");
  });
  plan.is_aborted_by_others = true;
  const Status ran = plan.Run(Until(3'600'000 * kMs), SteppedClock(10 * kMs));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().what, "rank 2 aborted the group");
  EXPECT_EQ(plan.turns, 50);
}

TEST(PlanTest, OneThatIsDeafToAnAbortOfOthersIsNotAskedForEver) {
  ScriptedPlan plan(InProgress);
  plan.is_aborted_by_others = true;
  const Status ran = plan.Run(Until(3'600'000 * kMs), SteppedClock(10 * kMs));
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kAborted);
  EXPECT_FALSE(IsStillInProgress(ran.error()));
  EXPECT_NE(ran.error().ToText().find(kBuffersStayInUse), std::string::npos);
  EXPECT_GE(plan.turns, 90);
}

}  // namespace
}  // namespace cotune
