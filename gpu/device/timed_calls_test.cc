// The calls of a sample on a driver that stands in for a GPU: which plans are captured, and when
// the calls of the others are launched.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "gpu/device/cuda_device.h"
#include "gpu/device/testing/like_ranks.h"

namespace cotune::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecondNs = 1'000'000'000;

class TimedCallsTest : public ::testing::Test {
 protected:
  TimedCallsTest() {
    // Whoever opens libcuda.so.1 finds it from here on.
    const std::string path = std::filesystem::absolute("gpu/device/stalled_libcuda.so");
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    captures_ = Find<std::atomic<int>>("stalled_driver_captures");
    graph_launches_ = Find<std::atomic<int>>("stalled_driver_graph_launches");
    // The word by which the host lets the barrier of the ranks end.
    released_moment_ = Find<volatile unsigned long long>("stalled_driver_host_words");
    *captures_ = 0;
    *graph_launches_ = 0;
  }
  template <typename T>
  T* Find(const char* symbol) {
    return static_cast<T*>(dlsym(library_, symbol));
  }
  std::unique_ptr<Device> MakeDevice(int world_size) {
    LikeRanks exchange(world_size);
    auto device = MakeCudaDevice({.may_share_gpus = true}, exchange, clock_, DeadlineNs());
    EXPECT_TRUE(device) << device.error().ToText();
    return device ? std::move(*device) : nullptr;
  }
  int64_t DeadlineNs() const { return clock_.now_ns() + 60 * kSecondNs; }

  const MonotonicClock clock_;
  void* library_ = nullptr;
  std::atomic<int>* captures_ = nullptr;
  std::atomic<int>* graph_launches_ = nullptr;
  volatile unsigned long long* released_moment_ = nullptr;
};

struct SeenLaunch {
  void* recv;
  int64_t deadline_ns;
  unsigned long long released_moment;
};

class SeenPlan final : public Plan {
 public:
  SeenPlan(bool is_capturable, const volatile unsigned long long* released_moment)
      : is_capturable_(is_capturable), released_moment_(released_moment) {}
  bool is_capturable() const override { return is_capturable_; }
  Status Launch(const LaunchArguments& arguments) override {
    launches.push_back({arguments.recv, arguments.deadline_ns, *released_moment_});
    if (fails) return Fail(ErrorCode::kInternal, "this launch fails");
    return {};
  }
  Result<bool> Progress(int64_t) override { return true; }

  std::vector<SeenLaunch> launches;
  bool fails = false;

 private:
  const bool is_capturable_;
  const volatile unsigned long long* released_moment_;
};

std::vector<LaunchArguments> TwoCalls(char* buffers) {
  return {{.recv = buffers, .deadline_ns = 1}, {.recv = buffers + 1, .deadline_ns = 2}};
}

TEST_F(TimedCallsTest, APlanThatIsCapturableIsCapturedOnce) {
  const auto device = MakeDevice(1);
  SeenPlan plan(true, released_moment_);
  char buffers[2];
  const auto calls = device->Prepare(plan, TwoCalls(buffers), 3);
  ASSERT_TRUE(calls) << calls.error().ToText();
  EXPECT_EQ(*captures_, 1);
  EXPECT_THAT(plan.launches, SizeIs(3));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE((*calls)->Run(0, DeadlineNs()));
  EXPECT_EQ(*graph_launches_, 2);
  EXPECT_THAT(plan.launches, SizeIs(3)) << "a graph runs, no call";
}

TEST_F(TimedCallsTest, APlanThatIsNotCapturableIsLaunchedInEachSampleAndNeverCaptured) {
  const auto device = MakeDevice(1);
  SeenPlan plan(false, released_moment_);
  char buffers[2];
  const auto calls = device->Prepare(plan, TwoCalls(buffers), 3);
  ASSERT_TRUE(calls) << calls.error().ToText();
  EXPECT_THAT(plan.launches, IsEmpty());
  const int64_t deadline_ns = DeadlineNs();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE((*calls)->Run(0, deadline_ns));
  std::vector<void*> received;
  for (const SeenLaunch& launch : plan.launches) {
    received.push_back(launch.recv);
    EXPECT_EQ(launch.deadline_ns, deadline_ns) << "that of the sample, not of its preparation";
  }
  EXPECT_THAT(received, ElementsAre(buffers, buffers + 1, buffers, buffers, buffers + 1, buffers));
  EXPECT_EQ(*captures_, 0);
  EXPECT_EQ(*graph_launches_, 0);
}

// A launch that waits for the stream would wait for a barrier that waits for the launch.
TEST_F(TimedCallsTest, CallsThatAreNotCapturedAreLaunchedWhenTheBarrierMayEnd) {
  const auto device = MakeDevice(2);
  SeenPlan plan(false, released_moment_);
  char buffers[2];
  const auto calls = device->Prepare(plan, TwoCalls(buffers), 2);
  ASSERT_TRUE(calls) << calls.error().ToText();
  constexpr int64_t kMomentNs = 77;
  EXPECT_TRUE((*calls)->Run(kMomentNs, DeadlineNs()));
  EXPECT_THAT(plan.launches, SizeIs(2));
  for (const SeenLaunch& launch : plan.launches) EXPECT_EQ(launch.released_moment, kMomentNs);
}

TEST_F(TimedCallsTest, ALaunchThatFailsIsTheErrorOfTheSampleAndTheBarrierEnds) {
  const auto device = MakeDevice(2);
  SeenPlan plan(false, released_moment_);
  plan.fails = true;
  char buffers[2];
  const auto calls = device->Prepare(plan, TwoCalls(buffers), 2);
  ASSERT_TRUE(calls) << calls.error().ToText();
  constexpr int64_t kMomentNs = 78;
  const auto span = (*calls)->Run(kMomentNs, DeadlineNs());
  ASSERT_FALSE(span);
  EXPECT_EQ(span.error().what, "this launch fails");
  EXPECT_THAT(plan.launches, SizeIs(1));
  EXPECT_EQ(*released_moment_, kMomentNs);
}

}  // namespace
}  // namespace cotune::gpu
