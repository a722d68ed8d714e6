#include "core/benchmark/sample_size.h"

#include <gtest/gtest.h>

namespace cotune {
namespace {

TEST(SampleSizeTest, AsManyCallsAsFit) {
  EXPECT_EQ(CallsOfSample(200'000, 30'000, 1, MemoryKind::kHost), 6);
  EXPECT_EQ(CallsOfSample(200'000, 30'000, 1, MemoryKind::kCuda), 6);
  EXPECT_EQ(CallsOfSample(200'000, 1, 1, MemoryKind::kCuda), 1000);
}

TEST(SampleSizeTest, ALongCallIsOneOnTheHostAndThreeOrFourOnGpus) {
  EXPECT_EQ(CallsOfSample(200'000, 1'000'000, 1, MemoryKind::kHost), 1);
  EXPECT_EQ(CallsOfSample(200'000, 1'000'000, 1, MemoryKind::kCuda), 3);
  EXPECT_EQ(CallsOfSample(200'000, 501'000, 1, MemoryKind::kCuda), 3);
  EXPECT_EQ(CallsOfSample(200'000, 500'000, 1, MemoryKind::kCuda), 4);
  EXPECT_EQ(CallsOfSample(200'000, 60'000, 1, MemoryKind::kCuda), 4);
}

TEST(SampleSizeTest, OnTheHostCallsInARowFillTwoAndAHalfSamplesAtMost) {
  EXPECT_EQ(CallsOfSample(200'000, 49'000, 1, MemoryKind::kHost), 4) << "as many as fit";
  EXPECT_EQ(CallsOfSample(200'000, 100'000, 1, MemoryKind::kHost), 4);
  EXPECT_EQ(CallsOfSample(200'000, 126'000, 1, MemoryKind::kHost), 3);
  EXPECT_EQ(CallsOfSample(200'000, 250'000, 1, MemoryKind::kHost), 2);
  EXPECT_EQ(CallsOfSample(200'000, 251'000, 1, MemoryKind::kHost), 1);
  EXPECT_EQ(CallsOfSample(1, 1'000, 1, MemoryKind::kHost), 1) << "the user wants one";
}

TEST(SampleSizeTest, ASampleGoesRoundOverAllCopiesWhereThatIsShort) {
  EXPECT_EQ(CallsOfSample(200'000, 30'000, 9, MemoryKind::kHost), 9);
  EXPECT_EQ(CallsOfSample(200'000, 15'000, 9, MemoryKind::kHost), 18);
  EXPECT_EQ(CallsOfSample(200'000, 600'000, 9, MemoryKind::kHost), 1);
  EXPECT_EQ(CallsOfSample(200'000, 600'000, 9, MemoryKind::kCuda), 3);
  EXPECT_EQ(CallsOfSample(200'000, 200'000, 10, MemoryKind::kCuda), 10);
}

}  // namespace
}  // namespace cotune
