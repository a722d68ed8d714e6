#include "core/base/host_memory.h"

#include <gtest/gtest.h>

namespace cotune {
namespace {

TEST(HostMemoryTest, ReadsWhatTheMachineHas) {
  EXPECT_EQ(ParseMemAvailable("MemTotal:  9 kB\nMemAvailable:   1024 kB\nBuffers: 3 kB\n"),
            1024u * 1024);
  EXPECT_EQ(ParseMemAvailable("MemTotal: 9 kB\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: lots\n"), std::nullopt);
  EXPECT_EQ(ParseMemAvailable(""), std::nullopt);
}

TEST(HostMemoryTest, ReadsWhatAControlGroupLeaves) {
  EXPECT_EQ(ParseGroupAvailable("1000\n", "400\n", "anon 1\ninactive_file 100\n"), 700u);
  EXPECT_EQ(ParseGroupAvailable("1000\n", "400\n",
                                "inactive_file 100\nactive_file 50\nslab_reclaimable 10\n"),
            760u);
  EXPECT_EQ(ParseGroupAvailable("1000\n", "400\n", ""), 600u);
  EXPECT_EQ(ParseGroupAvailable("1000\n", "1200\n", ""), 0u) << "above its limit";
  EXPECT_EQ(ParseGroupAvailable("1000\n", "50\n", "inactive_file 100\n"), 1000u);
  EXPECT_EQ(ParseGroupAvailable("max\n", "400\n", ""), std::nullopt);
  EXPECT_EQ(ParseGroupAvailable("", "", ""), std::nullopt);
}

TEST(HostMemoryTest, ThisMachineSays) {
  const std::optional<uint64_t> bytes = AvailableHostBytes();
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, 1u << 20);
}

}  // namespace
}  // namespace cotune
