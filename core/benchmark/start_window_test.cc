#include "core/benchmark/start_window.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr int64_t kPlannedNs = 1'000'000;

// The first rank starts as planned.
SampleSpan StartedAt(int64_t last_start_ns, int64_t span_ns = 100'000) {
  return {.span_ns = span_ns,
          .skew_ns = std::max<int64_t>(0, last_start_ns - kPlannedNs),
          .last_start_ns = last_start_ns};
}

TEST(StartWindowTest, ASampleCountsWhenNoRankStartsMuchLaterThanPlanned) {
  StartWindow window(StartMode::kWindow);
  EXPECT_TRUE(window.Accepts(StartedAt(kPlannedNs + 5'000), kPlannedNs)) << "a twentieth";
  EXPECT_FALSE(window.Accepts(StartedAt(kPlannedNs + 5'001), kPlannedNs));
  EXPECT_TRUE(window.Accepts(StartedAt(kPlannedNs + 2'000, 100), kPlannedNs)) << "2 us at least";
  EXPECT_FALSE(window.Accepts(StartedAt(kPlannedNs + 2'001, 100), kPlannedNs));
  EXPECT_TRUE(window.Accepts(StartedAt(kPlannedNs * 99), 0)) << "no start was planned";
  EXPECT_EQ(window.invalid_samples(), 2);
}

TEST(StartWindowTest, ASampleCountsWhenAllRanksStartLateTogether) {
  StartWindow window(StartMode::kWindow);
  const auto late_by = [](int64_t skew_ns) {
    return SampleSpan{
        .span_ns = 100'000, .skew_ns = skew_ns, .last_start_ns = kPlannedNs + 300'000};
  };
  EXPECT_TRUE(window.Accepts(late_by(5'000), kPlannedNs));
  EXPECT_FALSE(window.Accepts(late_by(5'001), kPlannedNs));
  EXPECT_EQ(window.invalid_samples(), 1);
}

TEST(StartWindowTest, AMissedWindowGrowsUpToItsLimit) {
  StartWindow window(StartMode::kWindow);
  EXPECT_EQ(window.DelayNs(0), 250'000);
  EXPECT_EQ(window.DelayNs(1'000), 252'000) << "the untimed call may be slow";
  window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  EXPECT_EQ(window.DelayNs(0), 500'000);
  for (int i = 0; i < 6; ++i) window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  EXPECT_EQ(window.DelayNs(0), 500'000);
  StartWindow of_many(StartMode::kWindow, 500'000, 30);
  window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  of_many.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  EXPECT_EQ(of_many.DelayNs(0), 800'000) << "the last rank is released late";
}

TEST(StartWindowTest, AfterEightMissesTheRanksLineUpBehindTheBarrier) {
  StartWindow window(StartMode::kWindow);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(window.mode(), StartMode::kWindow);
    window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  }
  EXPECT_EQ(window.mode(), StartMode::kBarrier);
  EXPECT_EQ(window.DelayNs(0), 0);
  EXPECT_EQ(window.invalid_samples(), 8);
}

TEST(StartWindowTest, EightSamplesInARowHalveTheWindow) {
  StartWindow window(StartMode::kWindow);
  const auto accept = [&](int samples) {
    for (int i = 0; i < samples; ++i)
      EXPECT_TRUE(window.Accepts(StartedAt(kPlannedNs), kPlannedNs));
  };
  accept(7);
  EXPECT_EQ(window.DelayNs(0), 250'000);
  accept(1);
  EXPECT_EQ(window.DelayNs(0), 125'000);
  accept(7);
  EXPECT_FALSE(window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs));
  EXPECT_EQ(window.DelayNs(0), 125'000) << "the first miss after 15 samples";
  accept(7);
  EXPECT_FALSE(window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs));
  EXPECT_EQ(window.DelayNs(0), 250'000) << "the second one within 8";
  accept(15);
  EXPECT_EQ(window.DelayNs(0), 250'000) << "a window that was too short is not tried again soon";
  accept(1);
  EXPECT_EQ(window.DelayNs(0), 125'000);
  accept(48);
  EXPECT_EQ(window.DelayNs(0), 62'500) << "the shortest one";
}

TEST(StartWindowTest, ACellBeginsWithTheWindowThatTheOneBeforeHasLeft) {
  StartWindow before(StartMode::kWindow);
  for (int i = 0; i < 8; ++i) before.Accepts(StartedAt(kPlannedNs), kPlannedNs);
  StartWindow window(StartMode::kWindow, before.window_ns());
  EXPECT_EQ(window.DelayNs(0), 125'000);
  EXPECT_EQ(window.invalid_samples(), 0) << "those of this cell";
}

// A release that takes 100 us: each window below it misses, and is left for good before the misses
// add up.
TEST(StartWindowTest, AWindowThatIsJustLongEnoughIsKept) {
  StartWindow window(StartMode::kWindow);
  for (int sample = 0; sample < 1000; ++sample) {
    const bool is_late = window.DelayNs(0) < 100'000;
    window.Accepts(StartedAt(is_late ? kPlannedNs * 2 : kPlannedNs), kPlannedNs);
  }
  EXPECT_EQ(window.mode(), StartMode::kWindow);
  EXPECT_LE(window.invalid_samples(), 120);
}

// One miss in nine samples is the price of the shortest window that does, and no reason to line up
// otherwise.
TEST(StartWindowTest, MissesThatTheWindowRecoversFromDoNotAddUp) {
  StartWindow window(StartMode::kWindow);
  for (int turn = 0; turn < 100; ++turn) {
    for (int i = 0; i < 8; ++i) window.Accepts(StartedAt(kPlannedNs), kPlannedNs);
    window.Accepts(StartedAt(kPlannedNs * 2), kPlannedNs);
  }
  EXPECT_EQ(window.mode(), StartMode::kWindow);
  EXPECT_EQ(window.invalid_samples(), 100);
}

TEST(StartWindowTest, OtherModesPlanNoStart) {
  EXPECT_EQ(StartWindow(StartMode::kBarrier).DelayNs(1'000), 0);
  EXPECT_EQ(StartWindow(StartMode::kDevice).DelayNs(1'000), 0);
}

}  // namespace
}  // namespace cotune
