#include "plugins/loader/call_guard.h"

#include <thread>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// Calls `second` while another thread is inside `first`, which ends the process.
void Overlap(CallGuard& guard, const char* first, const char* second) {
  const CallGuard::Scope outer(guard, first);
  std::thread([&] { const CallGuard::Scope inner(guard, second); }).join();
}

TEST(CallGuardDeathTest, OverlappingCallsEndTheProcessAndAreNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  CallGuard guard(true, "group g7 of backend fake");
  EXPECT_DEATH(Overlap(guard, "progress", "launch"),
               "thread rule broken: launch was called while progress was running on group g7 of "
               "backend fake; .group. and .hot. calls of a group come one at a time");
  EXPECT_DEATH(Overlap(guard, "prepare", "progress"),
               "progress was called while prepare was running");
  EXPECT_DEATH(Overlap(guard, "launch", "prepare"), "prepare was called while launch was running");
  EXPECT_DEATH(Overlap(guard, "progress", "progress"),
               "progress was called while progress was running");
}

TEST(CallGuardTest, CallsInARowAndOverlappingPreparesPass) {
  CallGuard guard(true, "group");
  Overlap(guard, "prepare", "prepare");
  for (const char* call : {"launch", "progress", "prepare", "progress", "plan_destroy"}) {
    const CallGuard::Scope scope(guard, call);
  }
}

TEST(CallGuardTest, AGuardThatIsOffLetsEverythingPass) {
  CallGuard guard(false, "group");
  Overlap(guard, "progress", "launch");
}

}  // namespace
}  // namespace cotune
