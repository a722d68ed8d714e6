// A program of the user's whose plugin never returns from a call, or throws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "integration/capi/cotune.h"
#include "integration/capi/group_state.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

constexpr int kOtherExitCode = 77;
constexpr unsigned kDeadlineS = 120;

// The log of groups, which says when a call is stuck.
struct StuckReport {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_come = false;

  static void Log(void* context, int32_t, const char* text) {
    if (std::string(text).find("does not return") == std::string::npos) return;
    auto& report = *static_cast<StuckReport*>(context);
    const std::lock_guard lock(report.mutex);
    report.has_come = true;
    report.changed.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return has_come; });
  }
};

// Runs the body in a child, which a signal ends when the body never returns. Gives waitpid's
// status: that of an exit with kOtherExitCode where the body has returned true.
template <typename Body>
int StatusOfChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kDeadlineS);
    _exit(body() ? kOtherExitCode : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

bool HasExitedWith(int status, int exit_code) {
  return WIFEXITED(status) && WEXITSTATUS(status) == exit_code;
}

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

  cotune_result TryCreate(const std::string& script, cotune_group** group,
                          cotune_error* error) const {
    std::ofstream(folder_ + "/config.toml") << "[fake]\nscript = \"" << script << "\"\n";
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.call_timeout_ns = 1'000'000'000;
    options.log = StuckReport::Log;
    options.log_context = &report_;
    error->struct_size = sizeof(*error);
    return cotune_group_create(&options, group, error);
  }
  cotune_group* Create(const std::string& script) const {
    cotune_group* group = nullptr;
    cotune_error error{};
    EXPECT_EQ(TryCreate(script, &group, &error), COTUNE_SUCCESS) << error.text;
    return group;
  }

  static cotune_result Sum(cotune_group* group) {
    static std::vector<float> send(16);
    static std::vector<float> recv(16);
    return cotune_all_reduce(group, send.data(), recv.data(), send.size(), COTUNE_F32,
                             COTUNE_REDUCE_SUM);
  }

  // A database with four winners, made by two groups: each prepares two of them.
  void MakeDatabase(const std::string& script, const std::string& path) const {
    setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "10s", 1);
    for (const uint64_t first : {1024u, 4096u}) {
      cotune_group* group = Create(script);
      ASSERT_NE(group, nullptr);
      const uint64_t sizes[] = {first, 2 * first};
      cotune_tune_options options{};
      options.struct_size = sizeof(options);
      options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
      options.sizes_bytes = sizes;
      options.size_count = 2;
      options.database_path = path.c_str();
      EXPECT_EQ(cotune_tune(group, &options, nullptr), COTUNE_SUCCESS) << cotune_last_error(group);
      cotune_group_destroy(group);
    }
    setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "100ms", 1);
  }

  std::string folder_;
  mutable StuckReport report_;
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
  report_.Await();  // the watch writes its line when it has time, and the log ends with this test
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

// The abort begins when the call's time has run out, and is not known to be stuck yet.
TEST_F(StuckCallTest, ADestroyWaitsForNoAbortThatNeverReturns) {
  const int status = StatusOfChild([this] {
    cotune_group* group =
        Create("choice a default; breach progress never_done; breach group_abort never_returns");
    // COTUNE_ERROR_ABORTED where the abort is earlier than the look at the clock.
    const cotune_result result = Sum(group);
    const bool has_failed = result == COTUNE_ERROR_DEADLINE || result == COTUNE_ERROR_ABORTED;
    if (!has_failed) std::fprintf(stderr, "the call gave %d\n", result);
    cotune_group_destroy(group);
    return has_failed;
  });
  EXPECT_TRUE(HasExitedWith(status, kOtherExitCode)) << status;
}

// With the limits of calls as they are by default, a minute passes before the abort is known to be
// stuck.
TEST_F(StuckCallTest, ADestroyDoesNotWaitUntilAnAbortIsKnownToBeStuck) {
  constexpr unsigned kWellBeforeS = 40;
  setenv("COTUNE_WARM_TIMEOUT", "10m", 1);
  setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "10s", 1);
  const int status = StatusOfChild([this] {
    cotune_group* group =
        Create("choice a default; breach progress never_done; breach group_abort never_returns");
    const int32_t rank = 0;
    cotune_group* part = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    if (cotune_group_split(group, "part", &rank, 1, &part, &error) != COTUNE_SUCCESS) return false;
    const bool has_failed = Sum(part) == COTUNE_ERROR_DEADLINE;
    alarm(kWellBeforeS);
    // The memory that the thread in the abort uses belongs to the group of all ranks too.
    cotune_group_destroy(part);
    cotune_group_destroy(group);
    return has_failed;
  });
  EXPECT_TRUE(HasExitedWith(status, kOtherExitCode)) << status;
}

TEST_F(StuckCallTest, AWinnerWhosePrepareNeverReturnsIsAnErrorOfCreateAndLoad) {
  const std::string script = "choice a default; breach prepare never_returns at=3";
  const std::string path = folder_ + "/x.tdb";
  ASSERT_NO_FATAL_FAILURE(MakeDatabase(script, path));
  const auto names_call = [](const char* text) {
    return std::string(text).find("prepare of choice fake/a for ") != std::string::npos;
  };
  const int created = StatusOfChild([&] {
    setenv("COTUNE_DATABASE", path.c_str(), 1);
    cotune_group* group = nullptr;
    cotune_error error{};
    return TryCreate(script, &group, &error) == COTUNE_ERROR_DEADLINE && group == nullptr &&
           names_call(error.text);
  });
  EXPECT_TRUE(HasExitedWith(created, kOtherExitCode)) << created;
  const int loaded = StatusOfChild([&] {
    cotune_group* group = Create(script);
    const bool has_failed = cotune_load(group, path.c_str()) == COTUNE_ERROR_DEADLINE &&
                            names_call(cotune_last_error(group));
    cotune_group_destroy(group);
    return has_failed;
  });
  EXPECT_TRUE(HasExitedWith(loaded, kOtherExitCode)) << loaded;
}

TEST_F(StuckCallTest, ASplitGivesTheErrorOfACallThatIsStuckOnAnotherThread) {
  const int status = StatusOfChild([this] {
    cotune_group* group = Create("choice a default; breach launch never_returns");
    std::thread([group] { Sum(group); }).detach();
    report_.Await();
    const int32_t rank = 0;
    cotune_group* part = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    return cotune_group_split(group, "part", &rank, 1, &part, &error) == COTUNE_ERROR_DEADLINE &&
           part == nullptr &&
           std::string(error.text).find("launch of choice fake/a") != std::string::npos;
  });
  EXPECT_TRUE(HasExitedWith(status, kOtherExitCode)) << status;
}

// An entry without memory behind it stands for memory of the group, which only GPUs have.
TEST_F(StuckCallTest, MemoryThatAStuckCallMayUseIsNotGivenBack) {
  const int status = StatusOfChild([this] {
    cotune_group* group = Create("choice a default; breach launch never_returns");
    float memory[16] = {};
    group->memory.emplace(memory, nullptr);
    std::thread([group] { Sum(group); }).detach();
    report_.Await();
    return cotune_memory_free(group, memory) == COTUNE_ERROR_DEADLINE &&
           group->memory.contains(memory);
  });
  EXPECT_TRUE(HasExitedWith(status, kOtherExitCode)) << status;
}

TEST_F(StuckCallTest, AForkedChildGivesNothingBackThatIsItsParents) {
  cotune_group* group = Create("choice a default");
  ASSERT_NE(group, nullptr);
  float memory[16] = {};
  group->memory.emplace(
      memory, capi::GroupMemory{memory, nullptr,
                                std::make_unique<CapturedMemory::Range>(
                                    group->job().captured_memory(), memory, sizeof(memory))});
  const int status = StatusOfChild([&] {
    return cotune_memory_unregister(group, memory) == COTUNE_ERROR_USAGE &&
           group->memory.contains(memory);
  });
  EXPECT_TRUE(HasExitedWith(status, kOtherExitCode)) << status;
  EXPECT_EQ(cotune_memory_unregister(group, memory), COTUNE_SUCCESS);
  EXPECT_FALSE(group->memory.contains(memory));
  cotune_group_destroy(group);
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
