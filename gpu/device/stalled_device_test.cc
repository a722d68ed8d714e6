// A GPU on which a kernel waits for a lost rank: what the pipeline asks of it ends at a deadline.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "gpu/device/cuda_device.h"
#include "gpu/device/testing/like_ranks.h"

namespace cotune::gpu {
namespace {

// Ten seconds pass whenever it is asked.
class HastyClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_ += 10'000'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

class StalledDeviceTest : public ::testing::Test {
 protected:
  StalledDeviceTest() {
    // Whoever opens libcuda.so.1 finds it from here on.
    const std::string path = std::filesystem::absolute("gpu/device/stalled_libcuda.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    is_stalled_ = static_cast<std::atomic<bool>*>(dlsym(library, "stalled_driver_is_stalled"));
    device_ = MakeCudaDevice({}, exchange_, clock_, INT64_MAX).value();
    left_ = device_->Allocate(bytes_.size()).value();
    right_ = device_->Allocate(bytes_.size()).value();
  }
  ~StalledDeviceTest() override { Free(); }
  void Free() {
    *is_stalled_ = false;
    is_stalled_->notify_all();
  }

  LikeRanks exchange_{1};
  HastyClock clock_;
  std::atomic<bool>* is_stalled_ = nullptr;
  std::array<std::byte, 20> bytes_{};
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> left_;
  std::unique_ptr<DeviceBuffer> right_;
};

TEST_F(StalledDeviceTest, TransfersOfAFreeGpuSucceed) {
  EXPECT_TRUE(device_->Write(*left_, bytes_));
  EXPECT_TRUE(device_->Read(*left_, bytes_));
  EXPECT_TRUE(device_->Fill(*left_, 0, bytes_.size(), std::byte{1}));
  EXPECT_TRUE(device_->Copy(*left_, *right_));
  EXPECT_TRUE(device_->Equal(*left_, *right_).value());
}

TEST_F(StalledDeviceTest, EachTransferEndsAtADeadline) {
  *is_stalled_ = true;
  const auto code_of = [](const Status& status) {
    return status ? ErrorCode::kInternal : status.error().code;
  };
  EXPECT_EQ(code_of(device_->Write(*left_, bytes_)), ErrorCode::kDeadline);
  EXPECT_EQ(code_of(device_->Read(*left_, bytes_)), ErrorCode::kDeadline);
  EXPECT_EQ(code_of(device_->Fill(*left_, 0, bytes_.size(), std::byte{1})), ErrorCode::kDeadline);
  EXPECT_EQ(code_of(device_->Copy(*left_, *right_)), ErrorCode::kDeadline);
  const auto equal = device_->Equal(*left_, *right_);
  ASSERT_FALSE(equal);
  EXPECT_EQ(equal.error().code, ErrorCode::kDeadline);
}

// The end of a device and of memory that ranks share would wait for the kernel. Both are left to
// the process instead.
TEST_F(StalledDeviceTest, ADeviceGoesWhileAKernelRuns) {
  auto shared = device_->AllocateShareable(4096);
  ASSERT_TRUE(shared) << shared.error().ToText();
  left_.reset();
  right_.reset();
  *is_stalled_ = true;
  shared->reset();
  device_.reset();
}

}  // namespace
}  // namespace cotune::gpu
