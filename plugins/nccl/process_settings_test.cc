#include "plugins/nccl/process_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;

constexpr char kTuner[] = "/lib/cotune_nccl.so";

TEST(ProcessSettingsTest, SetsWhatIsNotThere) {
  const auto decision = DecideSettings({nullptr, nullptr}, kTuner);
  ASSERT_TRUE(decision);
  EXPECT_TRUE(decision->sets_nvls_enable);
  EXPECT_TRUE(decision->sets_tuner_plugin);
  EXPECT_EQ(decision->why_no_tuner, "");
}

TEST(ProcessSettingsTest, KeepsWhatFits) {
  const auto decision = DecideSettings({"0", kTuner}, kTuner);
  ASSERT_TRUE(decision);
  EXPECT_FALSE(decision->sets_nvls_enable);
  EXPECT_FALSE(decision->sets_tuner_plugin);
  EXPECT_EQ(decision->why_no_tuner, "");
}

TEST(ProcessSettingsTest, AnotherTunerIsKeptAndNamed) {
  const auto decision = DecideSettings({"0", "/opt/other.so"}, kTuner);
  ASSERT_TRUE(decision);
  EXPECT_FALSE(decision->sets_tuner_plugin);
  EXPECT_THAT(decision->why_no_tuner, HasSubstr("/opt/other.so"));
}

TEST(ProcessSettingsTest, AProgramIsNoTuner) {
  const auto decision = DecideSettings({"0", nullptr}, "/bin/program");
  ASSERT_TRUE(decision);
  EXPECT_FALSE(decision->sets_tuner_plugin);
  EXPECT_THAT(decision->why_no_tuner, HasSubstr("part of a program"));
}

TEST(ProcessSettingsTest, MulticastIsRefused) {
  for (const char* value : {"1", "2", ""}) {
    const auto decision = DecideSettings({value, nullptr}, kTuner);
    ASSERT_FALSE(decision) << value;
    EXPECT_EQ(decision.error().status, COTUNE_UNSUPPORTED);
    EXPECT_THAT(decision.error().message, HasSubstr("NCCL_NVLS_ENABLE"));
  }
}

}  // namespace
}  // namespace cotune::nccl
