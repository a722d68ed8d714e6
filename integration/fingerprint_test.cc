#include "integration/fingerprint.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <set>

namespace cotune {
namespace {

TEST(FingerprintTest, HasTheFieldsOfThisMachine) {
  const auto fields = MachineFields();
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields.at("cores"), std::to_string(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_GE(std::stoi(fields.at("numa_nodes")), 1);
  EXPECT_FALSE(fields.at("architecture").empty());
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(cpuinfo), {}};
  EXPECT_TRUE(fields.at("cpu_model") == "unknown" ||
              text.find(": " + fields.at("cpu_model") + "\n") != std::string::npos);
}

// Ranks are bound to different cores; what they measure together is keyed alike.
TEST(FingerprintTest, DoesNotDependOnTheCoresOfTheProcess) {
  const auto before = MachineFields();
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable)) continue;
    CPU_SET(core, &one);
    break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(MachineFields(), before);
  ASSERT_EQ(sched_setaffinity(0, sizeof(usable), &usable), 0);
}

TEST(FingerprintTest, TheDigestTellsFieldsApart) {
  const std::map<std::string, std::string> fields = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(TopologyDigest(fields), TopologyDigest(fields));
  const std::set<uint64_t> digests = {TopologyDigest(fields),
                                      TopologyDigest({}),
                                      TopologyDigest({{"a", "1"}}),
                                      TopologyDigest({{"a", "1"}, {"b", "3"}}),
                                      TopologyDigest({{"a", "2"}, {"b", "2"}}),
                                      TopologyDigest({{"a", "1"}, {"c", "2"}})};
  EXPECT_EQ(digests.size(), 6u);
}

}  // namespace
}  // namespace cotune
