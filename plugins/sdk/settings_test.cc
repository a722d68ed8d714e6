// How settings are read, and the error for each that cannot be.
#include "plugins/sdk/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace cotune::sdk {
namespace {

using ::testing::HasSubstr;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    host_.struct_size = sizeof(host_);
    host_.context = &values_;
    host_.setting = [](void* context, const char* key) -> const char* {
      const auto& values = *static_cast<std::map<std::string, std::string>*>(context);
      const auto found = values.find(key);
      return found == values.end() ? nullptr : found->second.c_str();
    };
  }

  std::map<std::string, std::string> values_;
  cotune_host_t host_{};
};

TEST_F(SettingsTest, WhatIsNotSetHasTheBackendsOwnValue) {
  const Settings settings(host_, "probe");
  EXPECT_EQ(settings.Text("path"), std::nullopt);
  EXPECT_EQ(settings.Switch("check", true), true);
  EXPECT_EQ(settings.Bytes("slot", 7, {.smallest = 1, .largest = 2}), 7u);
  cotune_host_t without = host_;
  without.setting = nullptr;
  EXPECT_EQ(Settings(without, "probe").Text("path"), std::nullopt);
}

TEST_F(SettingsTest, SwitchesAreOnOrOff) {
  const Settings settings(host_, "probe");
  const std::pair<const char*, bool> known[] = {
      {"on", true}, {"1", true}, {"off", false}, {"0", false}};
  for (const auto& [text, value] : known) {
    values_["check"] = text;
    EXPECT_EQ(settings.Switch("check", !value), value) << text;
  }
  for (const char* text : {"", "yes", "On", "10"}) {
    values_["check"] = text;
    const auto read = settings.Switch("check", true);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().status, COTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(read.error().message, HasSubstr("setting probe.check is '" + std::string(text)));
  }
}

TEST_F(SettingsTest, SizesAreBytesOrKiBOrMiBInTheirRange) {
  const Settings settings(host_, "probe");
  const ByteRange range{.smallest = 4096, .largest = 1 << 20, .multiple_of = 1024};
  const std::pair<const char*, uint64_t> known[] = {
      {"4096", 4096}, {"4K", 4096}, {"1M", 1 << 20}, {"1048576", 1 << 20}, {"5K", 5120}};
  for (const auto& [text, value] : known) {
    values_["slot"] = text;
    EXPECT_EQ(settings.Bytes("slot", 0, range), value) << text;
  }
  for (const char* text : {"", "K", "-1", "4097", "3K", "2M", "4k", "4KK", " 4K", "4096x",
                           "18446744073709551615M", "99999999999999999999"}) {
    values_["slot"] = text;
    const auto read = settings.Bytes("slot", 0, range);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr("give a multiple of 1024 from 4096 to 1048576"));
  }
}

}  // namespace
}  // namespace cotune::sdk
