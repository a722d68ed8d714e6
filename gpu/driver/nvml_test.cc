#include "gpu/driver/nvml.h"

#include <gtest/gtest.h>

namespace cotune::gpu {
namespace {

constexpr char kBusId[] = "0000:1A:00.0";
using Names = std::vector<std::string>;

TEST(NvmlTest, ReadsClockAndReasonsOfAGpuItKnows) {
  const DriverResult<Nvml> nvml = Nvml::Open("gpu/driver/fake_nvml.so");
  ASSERT_TRUE(nvml.has_value()) << nvml.error().text;
  EXPECT_EQ(nvml->Handle("0000:FF:00.0"), nullptr);
  void* const gpu = nvml->Handle(kBusId);
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(nvml->Handle(kBusId), gpu);
  EXPECT_EQ(nvml->HandleOfUuid("GPU-00000000-0000-0000-0000-00000000001a"), gpu);
  EXPECT_EQ(nvml->HandleOfUuid("GPU-00000000-0000-0000-0000-00000000001b"), nullptr);
  const std::optional<ClockState> clocks = nvml->ReadClocks(gpu);
  ASSERT_TRUE(clocks.has_value());
  EXPECT_EQ(clocks->sm_mhz, 1980);
  EXPECT_EQ(ThrottleNames(clocks->reasons), (Names{"hw_thermal", "sw_power_cap"}));
  int other = 0;
  EXPECT_FALSE(nvml->ReadClocks(&other).has_value());
}

TEST(NvmlTest, AnOldLibraryAnswersNothing) {
  const DriverResult<Nvml> nvml = Nvml::Open("gpu/driver/fake_old_nvml.so");
  ASSERT_TRUE(nvml.has_value()) << nvml.error().text;
  void* const gpu = nvml->Handle(kBusId);
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(nvml->HandleOfUuid("GPU-00000000-0000-0000-0000-00000000001a"), nullptr);
  EXPECT_FALSE(nvml->ReadClocks(gpu).has_value());
  EXPECT_FALSE(nvml->JoinedByNvlink(gpu, gpu).has_value());
  EXPECT_EQ(nvml->ActiveLinks(gpu), 0);
}

TEST(NvmlTest, WithoutALibraryTheErrorNamesIt) {
  const DriverResult<Nvml> nvml = Nvml::Open("/no/such/libnvidia-ml.so.1");
  ASSERT_FALSE(nvml.has_value());
  EXPECT_NE(nvml.error().text.find("/no/such/libnvidia-ml.so.1"), std::string::npos);
}

TEST(NvmlTest, EveryReasonHasItsNameAndTheyAscend) {
  EXPECT_EQ(ThrottleNames(0), Names{});
  EXPECT_EQ(ThrottleNames(0x1 | 0x2 | 0x100), Names{});
  EXPECT_EQ(ThrottleNames(0x4), Names{"sw_power_cap"});
  EXPECT_EQ(ThrottleNames(~uint64_t{0}), (Names{"hw_power_brake", "hw_slowdown", "hw_thermal",
                                                "sw_power_cap", "sw_thermal", "sync_boost"}));
}

}  // namespace
}  // namespace cotune::gpu
