#include "core/launch_watchdog.h"

#include <atomic>
#include <future>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// A group that counts its aborts.
class GroupThatCounts final : public BackendGroup {
 public:
  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice&,
                                        int64_t) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {
    if (aborts.fetch_add(1) == 0) first_abort.set_value();
  }
  std::atomic<int> aborts = 0;
  std::promise<void> first_abort;
};

TEST(LaunchWatchdogTest, ALaunchThatIsNotOverAtItsDeadlineIsAbortedOnce) {
  const MonotonicClock clock;
  GroupThatCounts group;
  {
    LaunchWatchdog watchdog(clock);
    watchdog.Watch(group, clock.now_ns() + 1'000'000);
    group.first_abort.get_future().wait();
    watchdog.Unwatch();
  }
  EXPECT_EQ(group.aborts, 1);
}

TEST(LaunchWatchdogTest, ALaunchThatIsOverIsLeftAlone) {
  const MonotonicClock clock;
  GroupThatCounts ended;
  GroupThatCounts late;
  LaunchWatchdog watchdog(clock);
  watchdog.Watch(ended, clock.now_ns() + 1'000'000);
  watchdog.Unwatch();
  // When the thread has looked at this one, the time of the first has passed as well.
  watchdog.Watch(late, clock.now_ns() + 2'000'000);
  late.first_abort.get_future().wait();
  EXPECT_EQ(ended.aborts, 0);
}

}  // namespace
}  // namespace cotune
