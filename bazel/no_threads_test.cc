#include <gtest/gtest.h>

#include <thread>

namespace {

// This test is marked single_threaded, which the thread sanitizer believes.
TEST(NoThreadsDeathTest, AThreadEndsTheTest) {
  EXPECT_DEATH(std::thread([] {}).join(), "marked single_threaded .* and starts a thread");
}

}  // namespace
