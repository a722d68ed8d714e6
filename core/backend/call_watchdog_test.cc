#include "core/backend/call_watchdog.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// A group that counts its aborts, and may never come back from one.
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
    if (is_stuck) released.get_future().wait();
  }
  bool is_stuck = false;
  std::atomic<int> aborts = 0;
  std::promise<void> first_abort;
  std::promise<void> released;  // ends an abort that is stuck
};

const CallSubject kSubject = CallSubject::OfBackend("test", "/a/plugin.so");

// The reports of a watchdog, which a test waits for.
struct Reports {
  CallWatchdog::Options Options(int64_t stuck_after_ns = 1'000'000) {
    CallWatchdog::Options options;
    options.stuck_after_ns = stuck_after_ns;
    options.on_stuck = [this](const StuckCall& call, const Error& error) {
      ++count;
      stuck = call;
      text = error.ToText();
      reported.set_value();
    };
    return options;
  }
  int count = 0;
  StuckCall stuck;
  std::string text;
  std::promise<void> reported;
};

TEST(CallWatchdogTest, ALaunchThatIsNotOverAtItsDeadlineIsAbortedOnce) {
  const MonotonicClock clock;
  GroupThatCounts group;
  {
    CallWatchdog watchdog(clock);
    watchdog.Watch({&group}, kSubject, clock.now_ns() + 1'000'000);
    group.first_abort.get_future().wait();
    watchdog.Unwatch();
    EXPECT_EQ(watchdog.stuck(), nullptr);
  }
  EXPECT_EQ(group.aborts, 1);
}

TEST(CallWatchdogTest, ACallThatTakesLongIsToldOnceUnlessItWaitsForOtherRanks) {
  const MonotonicClock clock;
  const CallSubject other = CallSubject::OfBackend("other", "/a/plugin.so");
  std::vector<std::string> told;
  std::promise<void> first_told;
  std::promise<void> second_told;
  CallWatchdog::Options options;
  options.slow_after_ns = 1'000'000;
  options.on_slow = [&](const StuckCall& call) {
    told.push_back(call.function + (" of " + call.subject.text));
    (told.size() == 1 ? first_told : second_told).set_value();
  };
  {
    CallWatchdog watchdog(clock, options);
    CallSlot launches(&watchdog, nullptr);
    const RunningCall launch(launches, kSubject, "launch", INT64_MAX);
    CallSlot prepares(&watchdog, nullptr);
    const RunningCall prepare(prepares, kSubject, "prepare", INT64_MAX);
    first_told.get_future().wait();
    // When this one is told, the other two have been looked at again.
    CallSlot others(&watchdog, nullptr);
    const RunningCall later(others, other, "group_join", INT64_MAX);
    second_told.get_future().wait();
    EXPECT_EQ(watchdog.stuck(), nullptr);
  }
  EXPECT_EQ(told, (std::vector<std::string>{"prepare of " + kSubject.text,
                                            "group_join of " + other.text}));
}

TEST(CallWatchdogTest, ALaunchThatIsOverIsLeftAlone) {
  const MonotonicClock clock;
  GroupThatCounts ended;
  GroupThatCounts late;
  CallWatchdog watchdog(clock);
  watchdog.Watch({&ended}, kSubject, clock.now_ns() + 1'000'000);
  watchdog.Unwatch();
  // When the thread has looked at this one, the time of the first has passed as well.
  watchdog.Watch({&late}, kSubject, clock.now_ns() + 2'000'000);
  late.first_abort.get_future().wait();
  watchdog.Unwatch();
  EXPECT_EQ(ended.aborts, 0);
}

TEST(CallWatchdogTest, ACallThatNoAbortFreesIsReportedOnceByItsInnermostName) {
  const MonotonicClock clock;
  Reports reports;
  GroupThatCounts group;
  std::atomic<int> aborts = 0;
  CallWatchdog watchdog(clock, reports.Options());
  watchdog.Watch({&group}, kSubject, clock.now_ns());
  CallSlot slot(&watchdog, [&aborts] { ++aborts; });
  slot.Begin(kSubject, "launch", clock.now_ns());
  reports.reported.get_future().wait();
  while (watchdog.stuck() == nullptr) std::this_thread::yield();
  EXPECT_EQ(watchdog.stuck()->code, ErrorCode::kDeadline);
  slot.End();
  watchdog.Unwatch();
  EXPECT_EQ(reports.count, 1);
  EXPECT_STREQ(reports.stuck.function, "launch");
  EXPECT_EQ(reports.stuck.subject.backend, "test");
  EXPECT_FALSE(reports.stuck.was_interrupted);
  EXPECT_EQ(reports.text.find("launch of backend test (plugin /a/plugin.so) does not return"), 0u)
      << reports.text;
  EXPECT_EQ(aborts, 1);
}

// The watch goes on while an abort is stuck: another call is aborted and reported all the same.
TEST(CallWatchdogTest, AnAbortThatNeverReturnsHoldsNobody) {
  const MonotonicClock clock;
  Reports reports;
  // Its abort may come back when the test is over.
  static GroupThatCounts group;
  group.is_stuck = true;
  {
    CallWatchdog watchdog(clock, reports.Options());
    watchdog.Watch({&group}, kSubject, clock.now_ns());
    group.first_abort.get_future().wait();
    CallSlot slot(&watchdog, nullptr);
    slot.Begin(kSubject, "group_destroy", clock.now_ns());
    reports.reported.get_future().wait();
    slot.End();
    watchdog.Unwatch();
  }
  group.released.set_value();
}

TEST(CallWatchdogTest, AStopOfTheUserEndsALongCallBeforeItsDeadline) {
  const MonotonicClock clock;
  GroupThatCounts group;
  Reports reports;
  CallWatchdog watchdog(clock, reports.Options());
  std::atomic<bool> interrupted = false;
  watchdog.set_interrupted(&interrupted);
  watchdog.Watch({&group}, kSubject, INT64_MAX);
  interrupted = true;
  group.first_abort.get_future().wait();
  reports.reported.get_future().wait();
  EXPECT_TRUE(reports.stuck.was_interrupted);
  while (watchdog.stuck() == nullptr) std::this_thread::yield();
  EXPECT_EQ(watchdog.stuck()->code, ErrorCode::kInterrupted);
  watchdog.Unwatch();
  watchdog.set_interrupted(nullptr);
}

TEST(RunningCallTest, IsTheInnermostOfItsThread) {
  EXPECT_EQ(RunningCall::Current(), nullptr);
  CallSlot outer_slot(nullptr, nullptr);
  CallSlot inner_slot(nullptr, nullptr);
  {
    const RunningCall outer(outer_slot, kSubject, "prepare", 0);
    {
      const RunningCall inner(inner_slot, kSubject, "group_abort", 0);
      EXPECT_STREQ(RunningCall::Current()->function(), "group_abort");
      std::thread([] { EXPECT_EQ(RunningCall::Current(), nullptr); }).join();
    }
    EXPECT_EQ(RunningCall::Current(), &outer);
  }
  EXPECT_EQ(RunningCall::Current(), nullptr);
}

}  // namespace
}  // namespace cotune
