#include "plugins/loader/thread_rule_check.h"

#include <thread>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// Calls `second` while another thread is inside `first`, which ends the process.
void Overlap(ThreadRuleCheck& guard, const char* first, const char* second) {
  const ThreadRuleCheck::Scope outer(guard, first);
  std::thread([&] { const ThreadRuleCheck::Scope inner(guard, second); }).join();
}

TEST(ThreadRuleCheckDeathTest, OverlappingCallsEndTheProcessAndAreNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  ThreadRuleCheck guard(true, "group g7 of backend fake");
  EXPECT_DEATH(Overlap(guard, "progress", "launch"),
               "thread rule broken: launch was called while progress was running on group g7 of "
               "backend fake; .group. and .hot. calls of a group come one at a time");
  EXPECT_DEATH(Overlap(guard, "prepare", "progress"),
               "progress was called while prepare was running");
  EXPECT_DEATH(Overlap(guard, "launch", "prepare"), "prepare was called while launch was running");
  EXPECT_DEATH(Overlap(guard, "progress", "progress"),
               "progress was called while progress was running");
}

TEST(ThreadRuleCheckTest, CallsInARowAndOverlappingPreparesPass) {
  ThreadRuleCheck guard(true, "group");
  Overlap(guard, "prepare", "prepare");
  for (const char* call : {"launch", "progress", "prepare", "progress", "plan_destroy"}) {
    const ThreadRuleCheck::Scope scope(guard, call);
  }
}

TEST(ThreadRuleCheckTest, AGuardThatIsOffLetsEverythingPass) {
  ThreadRuleCheck guard(false, "group");
  Overlap(guard, "progress", "launch");
}

}  // namespace
}  // namespace cotune
