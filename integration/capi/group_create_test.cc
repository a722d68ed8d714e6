// Groups of one process: the options that make one, and those that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/event_sink.h"
#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "integration/capi/group_state.h"
#include "integration/capi/testing/one_process.h"
#include "integration/settings/setting_table.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As cotune.h promises it: watchdog, control channel and plugins have threads of their own.
TEST(CallerLogTest, LinesOfSeveralThreadsComeOneAtATime) {
  struct Seen {
    std::atomic<int> inside = 0;
    int overlaps = 0;
    int lines = 0;
  } seen;
  cotune_group_options options{};
  options.log = [](void* context, int32_t, const char*) {
    auto& all = *static_cast<Seen*>(context);
    if (all.inside.fetch_add(1) != 0) ++all.overlaps;
    ++all.lines;
    std::this_thread::yield();
    all.inside.fetch_sub(1);
  };
  options.log_context = &seen;
  capi::CallerLog log(options);
  constexpr int kLines = 2000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int line = 0; line < kLines; ++line) EmitLine(log, Severity::kWarning, "a line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.overlaps, 0);
  EXPECT_EQ(seen.lines, 4 * kLines);
}

TEST_F(OneProcessTest, ARankWithoutRankZeroNamesTheVariablesThatMadeItOne) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.plugin_path = folder_.c_str();
  options.join_timeout_ns = 1'000'000;
  cotune_group* group = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_ERROR_RANK_LOST);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_THAT(error.text,
              AllOf(HasSubstr("this process is rank 1 of 2 by RANK and WORLD_SIZE: without a "
                              "launcher unset them"),
                    Not(HasSubstr(folder_))));
}

// The operands of a group are where its options have them.
TEST_F(OneProcessTest, TheSettingMemoryIsRefusedInOptionsAndDoesNotCountElsewhere) {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.world_size = 1;
  options.plugin_path = folder_.c_str();
  for (const char* memory : {"memory=cuda", "memory=host"}) {
    options.settings = memory;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_ERROR_USAGE);
    EXPECT_EQ(group, nullptr);
    EXPECT_THAT(error.text, AllOf(HasSubstr("the setting memory does not count for a group"),
                                  HasSubstr("option settings of the group"),
                                  HasSubstr("give the option memory of the group")));
  }
  setenv("COTUNE_MEMORY", "cuda", 1);
  cotune_group_destroy(group_);
  group_ = Create();
  unsetenv("COTUNE_MEMORY");
  ASSERT_NE(group_, nullptr);
  EXPECT_EQ(cotune_group_device(group_), -1);
  CallOnce();
}

TEST_F(OneProcessTest, AForcedOperatorOfPyTorchIsRefusedInBothOptions) {
  for (const char* const member : {"force", "settings"}) {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    if (std::string(member) == "force") options.force = "lib::op=body";
    if (std::string(member) == "settings") options.settings = "force_choice=lib::op=body";
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_ERROR_USAGE);
    EXPECT_EQ(group, nullptr);
    EXPECT_THAT(error.text, AllOf(HasSubstr("\"lib::op=body\""),
                                  HasSubstr(fmt::format("option {} of the group", member)),
                                  HasSubstr("a custom operator of PyTorch"),
                                  HasSubstr("give it to cotune.torch")));
  }
}

// The word of the setting's help, or of the advice of its errors, from `name` to `end`.
std::string Example(std::string_view text, std::string_view name, std::string_view end) {
  const size_t begin = text.find(name);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin);
  return std::string(text.substr(0, text.find(end)));
}

TEST_F(OneProcessTest, TheExamplesOfForcedChoicesCanBeForced) {
  const SettingSpec& spec = *FindSetting("force_choice");
  for (const std::string& force : {Example(spec.help, "all_reduce=host/", ";"),
                                   Example(AllowedText(spec), "all_gather=host/", ",")}) {
    ASSERT_NE(force, "");
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.force = force.c_str();
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS)
        << force << ": " << error.text;
    cotune_group_destroy(group);
  }
}

// Options of an older header have no field for the database: cotune looks for it.
TEST_F(OneProcessTest, CallersOfAnOlderHeaderHaveTheDatabaseToo) {
  cotune_group_options options{};
  options.struct_size = offsetof(cotune_group_options, ignores_database);
  options.world_size = 1;
  options.plugin_path = folder_.c_str();
  cotune_group_destroy(group_);
  ASSERT_EQ(cotune_group_create(&options, &group_, nullptr), COTUNE_SUCCESS);
  options.struct_size = sizeof(options) + 8;
  cotune_group* newer = nullptr;
  EXPECT_EQ(cotune_group_create(&options, &newer, nullptr), COTUNE_ERROR_USAGE);
}

TEST_F(OneProcessTest, RefusesNegativeDurations) {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.world_size = 1;
  options.plugin_path = folder_.c_str();
  cotune_group* group = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  for (int64_t cotune_group_options::*const member :
       {&cotune_group_options::join_timeout_ns, &cotune_group_options::call_timeout_ns}) {
    options.join_timeout_ns = options.call_timeout_ns = 0;
    options.*member = -5;
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_ERROR_USAGE);
    EXPECT_THAT(error.text, AllOf(HasSubstr("_timeout_ns is -5 ns"),
                                  HasSubstr("for example 30000000000 for 30 s")));
  }
  cotune_tune_options tune{};
  tune.struct_size = sizeof(tune);
  tune.budget_ns = -1;
  EXPECT_EQ(cotune_tune(group_, &tune, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("budget_ns is -1 ns"));
}

TEST_F(OneProcessTest, ASplitThatFailsIsTheParentsLastError) {
  cotune_group* part = nullptr;
  const int32_t rank = 3;
  EXPECT_EQ(cotune_group_split(group_, "part", &rank, 1, &part, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_EQ(part, nullptr);
  EXPECT_EQ(cotune_last_result(group_), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("rank 3"));
}

}  // namespace
}  // namespace cotune
