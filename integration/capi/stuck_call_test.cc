// A program of the user's whose plugin never returns from a call, or throws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

constexpr int kOtherExitCode = 77;

// Prepares a folder with the fake plugin and a settings file.
class StuckCallTest : public ::testing::Test {
 protected:
  StuckCallTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::string plugin = folder_ + "/cotune_fake.so";
    std::filesystem::copy_file(std::filesystem::canonical("plugins/fake/cotune_fake.so"), plugin);
    std::filesystem::permissions(plugin, std::filesystem::perms(0755));
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    setenv("COTUNE_CONFIG", (folder_ + "/config.toml").c_str(), 1);
    setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "100ms", 1);
    setenv("COTUNE_WARM_TIMEOUT", "1s", 1);
    unsetenv("COTUNE_EXIT_WHEN_STUCK");
  }
  ~StuckCallTest() override { std::filesystem::remove_all(folder_); }

  cotune_group* Create(const std::string& script) const {
    std::ofstream(folder_ + "/config.toml") << "[fake]\nscript = \"" << script << "\"\n";
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.call_timeout_ns = 1'000'000'000;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
    return group;
  }

  static cotune_result Sum(cotune_group* group) {
    static std::vector<float> send(16);
    static std::vector<float> recv(16);
    return cotune_all_reduce(group, send.data(), recv.data(), send.size(), COTUNE_F32,
                             COTUNE_REDUCE_SUM);
  }

  std::string folder_;
};

// The thread that is stuck is one of cotune's own.
TEST_F(StuckCallTest, APrepareThatNeverReturnsIsAnErrorOfTheTuneAndOfAllLaterCalls) {
  cotune_group* group = Create("choice a default; choice b; breach prepare never_returns choice=b");
  ASSERT_NE(group, nullptr);
  ASSERT_EQ(Sum(group), COTUNE_SUCCESS) << cotune_last_error(group);
  EXPECT_EQ(cotune_tune(group, nullptr, nullptr), COTUNE_ERROR_DEADLINE);
  EXPECT_THAT(cotune_last_error(group), HasSubstr("prepare of choice fake/b for "));
  EXPECT_THAT(cotune_last_error(group), HasSubstr("does not return"));
  EXPECT_EQ(Sum(group), COTUNE_ERROR_DEADLINE);
  EXPECT_THAT(cotune_last_error(group), HasSubstr("prepare of choice fake/b"));
  EXPECT_EQ(cotune_group_check(group), COTUNE_ERROR_DEADLINE);
  cotune_group_destroy(group);
  // The thread still uses it, so it is no leak.
  static cotune_group* const kept = group;
  EXPECT_NE(kept, nullptr);
}

TEST_F(StuckCallTest, TheProcessEndsWhereTheUserWantsItTo) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("COTUNE_EXIT_WHEN_STUCK", "on", 1);
    cotune_group* group = Create("choice a default; breach progress never_returns");
    Sum(group);
    _exit(kOtherExitCode);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), cotune_exit_code(COTUNE_ERROR_DEADLINE));
}

TEST_F(StuckCallTest, NothingThatAPluginThrowsLeavesTheApi) {
  for (const std::string function : {"prepare", "launch", "progress", "plan_destroy",
                                     "group_destroy", "group_abort", "destroy", "list_choices"}) {
    for (const std::string how : {"throws", "throws_int"}) {
      cotune_group* group = Create("choice a default; breach " + function + " " + how);
      ASSERT_NE(group, nullptr);
      const cotune_result ran = Sum(group);
      const bool gives_answers = function == "prepare" || function == "launch" ||
                                 function == "progress" || function == "list_choices";
      EXPECT_EQ(ran != COTUNE_SUCCESS, gives_answers) << function;
      if (gives_answers) {
        EXPECT_THAT(cotune_last_error(group), HasSubstr(function + " threw an exception"));
      }
      cotune_group_destroy(group);
    }
  }
}

}  // namespace
}  // namespace cotune
