// Three cases for bazel/parallel_main_test.sh, one for each process; BREAK says how the second one
// goes wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

TEST(Sample, A) { EXPECT_STREQ(std::getenv("GTEST_TOTAL_SHARDS"), "3"); }

TEST(Sample, B) {
  const std::string how = std::getenv("BREAK");
  EXPECT_NE(how, "expectation");
  if (how == "signal") raise(SIGKILL);
  if (how == "early_exit") std::exit(0);
  if (how == "hang") {
    std::ofstream(std::string(std::getenv("TEST_TMPDIR")) + "/hangs") << "now";
    pause();
  }
}

TEST(Sample, C) { EXPECT_EQ(std::getenv("COTUNE_TEST_PROCESSES"), nullptr); }

}  // namespace
