// A group of one process: what it takes from a tuned database and puts into one; what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/event_sink.h"
#include "core/database/tuned_database.h"
#include "core/database/tuned_database_lock.h"
#include "integration/capi/cotune.h"
#include "integration/capi/group_state.h"
#include "integration/settings/setting_table.h"
#include "nlohmann/json.hpp"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSizeBytes = 4096;
constexpr uint64_t kCount = kSizeBytes / sizeof(float);

// A group of this process alone. The plugin is a copy in a folder of the test's own: it counts only
// as a file that nobody else may write.
class OneProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/cotune.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    const std::string plugin = folder_ + "/cotune_host.so";
    std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
    std::filesystem::permissions(plugin, std::filesystem::perms(0755));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    group_ = Create();
    ASSERT_NE(group_, nullptr);
  }

  void TearDown() override {
    cotune_group_destroy(group_);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void CallOnce() {
    float sent = 3;
    float received = 0;
    EXPECT_EQ(cotune_all_reduce(group_, &sent, &received, 1, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_SUCCESS)
        << cotune_last_error(group_);
    EXPECT_EQ(received, 3);
  }

  cotune_group* Create(const cotune_functions* functions = nullptr) {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.functions = functions;
    options.log = [](void* lines, int32_t, const char* text) {
      static_cast<std::vector<std::string>*>(lines)->emplace_back(text);
    };
    options.log_context = &log_;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
    return group;
  }

  cotune_tune_report Tune(const std::string& path, bool is_in_place,
                          uint64_t size_bytes = kSizeBytes) {
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE | 1u << COTUNE_COLLECTIVE_BROADCAST;
    options.sizes_bytes = &size_bytes;
    options.size_count = 1;
    options.database_path = path.empty() ? nullptr : path.c_str();
    options.is_in_place = is_in_place ? 1 : 0;
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    EXPECT_EQ(cotune_tune(group_, &options, &report), COTUNE_SUCCESS) << cotune_last_error(group_);
    return report;
  }

  std::string Explained(bool is_in_place, uint64_t count = kCount) const {
    cotune_call call{};
    call.struct_size = sizeof(call);
    call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
    call.dtype = COTUNE_F32;
    call.reduction = COTUNE_REDUCE_SUM;
    call.is_in_place = is_in_place ? 1 : 0;
    call.count = count;
    char text[4096] = "";
    EXPECT_EQ(cotune_explain(group_, &call, text, sizeof(text), nullptr), COTUNE_SUCCESS)
        << cotune_last_error(group_);
    return text;
  }

  nlohmann::json ExplainedAsJson(uint64_t count) const {
    cotune_call call{};
    call.struct_size = sizeof(call);
    call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
    call.dtype = COTUNE_F32;
    call.reduction = COTUNE_REDUCE_SUM;
    call.count = count;
    size_t length = 0;
    EXPECT_EQ(cotune_explain_json(group_, &call, nullptr, 0, &length), COTUNE_SUCCESS);
    std::string text(length + 1, '\0');
    EXPECT_EQ(cotune_explain_json(group_, &call, text.data(), text.size(), &length),
              COTUNE_SUCCESS);
    text.resize(length);
    return nlohmann::json::parse(text);
  }

  static std::vector<DatabaseEntry> EntriesOf(const std::string& path) {
    const Result<TunedDatabase> database = TunedDatabase::Load(path);
    EXPECT_TRUE(database) << database.error().ToText();
    const Result<std::vector<DatabaseEntry>> entries = database->entries();
    EXPECT_TRUE(entries) << entries.error().ToText();
    return *entries;
  }

  // Writes these entries, and nothing else, to the path.
  static void Write(const std::vector<DatabaseEntry>& entries, const std::string& path) {
    TunedDatabase database;
    for (const DatabaseEntry& entry : entries) database.Put(entry);
    const Status saved = database.Save(path);
    ASSERT_TRUE(saved) << saved.error().ToText();
  }

  std::string folder_;
  cotune_group* group_ = nullptr;
  std::vector<std::string> log_;
};

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

// A call in place runs by the row of those out of place. No row is near to an all_gather.
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

TEST_F(OneProcessTest, CallsThatNoRowIsNearToAreWarnedOfOnce) {
  Tune(folder_ + "/tuned.tdb", false);
  log_.clear();
  CallOnce();
  for (const std::string& line : log_) EXPECT_THAT(line, Not(HasSubstr("run the default choice:")));
  log_.clear();
  float data[4] = {1, 2, 3, 4};
  for (const uint64_t count : {1, 2, 4, 1}) {
    EXPECT_EQ(cotune_all_reduce(group_, data, data, count, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_SUCCESS)
        << cotune_last_error(group_);
  }
  EXPECT_TRUE(log_.empty()) << log_.front();
  float gathered[4] = {};
  for (const uint64_t count : {1, 2, 4, 1}) {
    EXPECT_EQ(cotune_all_gather(group_, data, gathered, count, COTUNE_F32), COTUNE_SUCCESS)
        << cotune_last_error(group_);
  }
  EXPECT_THAT(log_,
              ElementsAre(AllOf(HasSubstr("calls of all_gather f32 out of place run the default"),
                                HasSubstr("cotune tune --collective all_gather --dtype f32"))));
}

TEST_F(OneProcessTest, WhatTheFileKnewKeepsItsTime) {
  const std::string path = folder_ + "/tuned.tdb";
  EXPECT_EQ(Tune(path, false).measured, 2);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  ASSERT_EQ(entries.size(), 2u);
  constexpr int64_t kLongAgo = 1'000'000;
  for (DatabaseEntry& entry : entries) {
    EXPECT_GT(entry.measured_unix_s, kLongAgo);
    entry.measured_unix_s = kLongAgo;
  }
  Write(entries, path);

  cotune_group_destroy(group_);
  group_ = Create();
  EXPECT_EQ(Tune(path, false).known, 2);
  const std::string copy = folder_ + "/copy.tdb";
  ASSERT_EQ(cotune_save(group_, copy.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_EQ(EntriesOf(copy), entries);
}

TEST_F(OneProcessTest, CallsInPlaceHaveWinnersOfTheirOwn) {
  Tune("", true);
  EXPECT_THAT(Explained(true), AllOf(HasSubstr("tuned for sizes"), HasSubstr("at 4096 bytes: ")));
  // Calls out of place have no row of their own.
  EXPECT_THAT(Explained(false),
              AllOf(HasSubstr("\nthis call was not measured: it runs by the row of all_reduce sum "
                              "f32 in place\ntuned for sizes"),
                    HasSubstr("at 4096 bytes: ")));
  const std::string path = folder_ + "/tuned.tdb";
  ASSERT_EQ(cotune_save(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  for (const DatabaseEntry& entry : EntriesOf(path)) {
    const ProblemClass& cls = entry.cell.problem.cls;
    EXPECT_EQ(cls.in_place, cls.collective == Collective::kAllReduce) << ToText(cls);
    EXPECT_GT(entry.measured_unix_s, 0);
  }
}

TEST_F(OneProcessTest, AnExplanationIsJsonToo) {
  EXPECT_EQ(ExplainedAsJson(kCount)["source"], "default");
  EXPECT_TRUE(ExplainedAsJson(kCount)["first_bytes"].is_null());
  Tune("", false);
  const nlohmann::json tuned = ExplainedAsJson(kCount);
  EXPECT_EQ(tuned["source"], "table");
  EXPECT_TRUE(tuned["relative"].is_null());
  EXPECT_EQ(tuned["bytes"], 4 * kCount);
  EXPECT_EQ(tuned["world_size"], 1);
  EXPECT_TRUE(tuned["rows"].is_null());
  EXPECT_TRUE(tuned["program"].is_null());
  EXPECT_EQ(tuned["smallest_measured_bytes"], 4 * kCount);
  EXPECT_EQ(tuned["largest_measured_bytes"], 4 * kCount);
  ASSERT_EQ(tuned["measured"].size(), 1u);
  EXPECT_EQ(tuned["measured"][0]["bytes"], 4 * kCount);
  EXPECT_GT(tuned["measured"][0]["time_us"], 0);
  EXPECT_EQ(tuned["measured"][0]["choices"][0]["choice"], tuned["choice"]);
  EXPECT_TRUE(tuned["measured"][0]["choices"][0]["warm_time_us"].is_null());
  EXPECT_THAT(Explained(false), Not(HasSubstr("was measured: ")));
  EXPECT_THAT(Explained(false, 4 * kCount), HasSubstr("nothing above 4096 bytes was measured"));
  EXPECT_THAT(Explained(false, 1), HasSubstr("nothing below 4096 bytes was measured"));
  EXPECT_EQ(ExplainedAsJson(4 * kCount)["largest_measured_bytes"], 4 * kCount);
}

TEST_F(OneProcessTest, TimesWithBuffersInTheCacheAreInTheJson) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  for (DatabaseEntry& entry : entries) entry.cell.verdicts.at(0).warm_median_ns = 14'600;
  Write(entries, path);
  cotune_group_destroy(group_);
  group_ = Create();
  ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_EQ(ExplainedAsJson(kCount)["measured"][0]["choices"][0]["warm_time_us"], 14.6);
}

TEST_F(OneProcessTest, AnUnsteadySizeIsMarkedInTheJsonAndMeasuredAgain) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  EXPECT_EQ(ExplainedAsJson(kCount)["measured"].at(0)["unsteady"], false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  for (DatabaseEntry& entry : entries) {
    entry.cell.is_unsteady = true;
    entry.winner.why = "the times were unsteady";
  }
  Write(entries, path);
  cotune_group_destroy(group_);
  group_ = Create();
  ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  const nlohmann::json size = ExplainedAsJson(kCount)["measured"].at(0);
  EXPECT_EQ(size["unsteady"], true);
  EXPECT_EQ(size["why"], "the times were unsteady");
  EXPECT_EQ(Tune(path, false).measured, 2);
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

cotune_result Nothing(void* /*context*/, cotune_function_group* /*group*/,
                      cotune_function_call* /*call*/, char* /*reason*/, size_t /*size*/) {
  return COTUNE_SUCCESS;
}

TEST_F(OneProcessTest, ASizeThatABackendWasMissingAtIsMarkedInTheJsonAndMeasuredAgain) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  EXPECT_EQ(ExplainedAsJson(kCount)["measured"].at(0)["not_raced"], nlohmann::json::array());
  cotune_group_destroy(group_);
  cotune_function function{};
  function.struct_size = sizeof(function);
  function.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
  function.name = "idle";
  function.run = Nothing;
  cotune_functions functions{};
  functions.struct_size = sizeof(functions);
  functions.functions = &function;
  functions.function_count = 1;
  group_ = Create(&functions);
  ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  const nlohmann::json size = ExplainedAsJson(kCount)["measured"].at(0);
  EXPECT_EQ(size["not_raced"], nlohmann::json::array({"caller"}));
  EXPECT_EQ(size["unsteady"], false);
  EXPECT_EQ(Tune(path, false).measured, 2);
  EXPECT_EQ(ExplainedAsJson(kCount)["measured"].at(0)["not_raced"], nlohmann::json::array());
}

// A process alone has one choice only: the log of the first call counts the sizes.
// Ends a tune of two cells before the second one. Gives the error.
std::string StopAfterOneCell(cotune_group* group, const std::string& database) {
  const std::array<uint64_t, 2> sizes_bytes = {kSizeBytes, 2 * kSizeBytes};
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
  options.sizes_bytes = sizes_bytes.data();
  options.size_count = sizes_bytes.size();
  options.database_path = database.c_str();
  options.progress = [](void*, int32_t cell, int32_t, const char*) -> int32_t { return cell == 2; };
  EXPECT_EQ(cotune_tune(group, &options, nullptr), COTUNE_ERROR_INTERRUPTED);
  return cotune_last_error(group);
}

TEST_F(OneProcessTest, AStoppedTuneKeepsItsCellsUnlessAnotherOneHasTheDatabase) {
  const std::string database = folder_ + "/a.tdb";
  const std::string journal = database + ".journal";
  {
    const Result<DatabaseLock> other = DatabaseLock::Acquire(database);
    ASSERT_TRUE(other.has_value()) << other.error().ToText();
    EXPECT_THAT(StopAfterOneCell(group_, database), HasSubstr("nothing of it is kept"));
    EXPECT_FALSE(std::filesystem::exists(journal));
  }
  EXPECT_EQ(Tune(database, false).known, 0);
  std::filesystem::remove(database);
  EXPECT_THAT(StopAfterOneCell(group_, database),
              HasSubstr("what was measured is kept in " + journal));
  EXPECT_TRUE(std::filesystem::exists(journal));
  EXPECT_EQ(Tune(database, false).known, 1);
}

// No more than 128 bytes fit into a file.
TEST_F(OneProcessTest, AFullDiskIsWarnedOfOnceAndTheTableIsUsed) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer keeps its own memory in a file, which would be cut too";
#endif
  signal(SIGXFSZ, SIG_IGN);
  rlimit whole{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit full{128, whole.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const uint64_t size_bytes = kSizeBytes;
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE | 1u << COTUNE_COLLECTIVE_BROADCAST;
  options.sizes_bytes = &size_bytes;
  options.size_count = 1;
  options.database_path = "";  // the default place
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  const cotune_result tuned = cotune_tune(group_, &options, &report);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &whole), 0);
  EXPECT_EQ(tuned, COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_EQ(report.measured, 2);
  const auto is_of_journal = [](const std::string& line) {
    return line.starts_with("a measurement cannot be written to the journal (");
  };
  EXPECT_EQ(std::count_if(log_.begin(), log_.end(), is_of_journal), 1)
      << ::testing::PrintToString(log_);
  EXPECT_THAT(Explained(false), HasSubstr("at 4096 bytes: "));
}

TEST_F(OneProcessTest, ALaterTuneKeepsTheSizesThatItDidNotMeasure) {
  constexpr uint64_t kLargeBytes = 1 << 20;
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  for (const bool loads_last : {false, true}) {
    cotune_group_destroy(group_);
    group_ = Create();
    log_.clear();
    if (loads_last) Tune("", false, kLargeBytes);
    ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
    if (!loads_last) Tune("", false, kLargeBytes);
    EXPECT_THAT(Explained(false),
                AllOf(HasSubstr("at 4096 bytes: "), HasSubstr("at 1048576 bytes: ")));
    CallOnce();
    CallOnce();
    // Tests beside this one may keep the processors busy, of which a tune warns.
    std::erase_if(
        log_, [](const std::string& line) { return line.starts_with("ranks often started late"); });
    EXPECT_THAT(log_, ElementsAre(HasSubstr("4 measured sizes")));
  }
}

// The file has all_reduce and broadcast, each at one size.
TEST_F(OneProcessTest, AWinnerThatNobodyKnowsIsLeftOutWithAWarning) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  ASSERT_EQ(entries.size(), 2u);
  const Result<ChoiceId> gone = ChoiceId::Parse("host/gone");
  ASSERT_TRUE(gone);
  entries[0].winner.id = *gone;
  for (Verdict& verdict : entries[0].cell.verdicts) verdict.id = *gone;
  Write(entries, path);
  cotune_group_destroy(group_);
  group_ = Create();
  log_.clear();
  ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  CallOnce();
  EXPECT_THAT(log_,
              ElementsAre(AllOf(HasSubstr("host/gone cannot run"),
                                HasSubstr("not among the choices of its backend")),
                          HasSubstr("1 measured size for 1 rank"),
                          HasSubstr("calls of all_reduce sum f32 out of place run the default")));
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

TEST_F(OneProcessTest, AGroupOfHostMemoryHasNoStream) {
  int stream = 0;
  EXPECT_EQ(cotune_group_device(group_), -1);
  EXPECT_EQ(cotune_group_set_stream(group_, &stream), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("host memory"));
  EXPECT_EQ(cotune_group_check(group_), COTUNE_SUCCESS);
}

TEST_F(OneProcessTest, HostMemoryIsNotRegistered) {
  void* data = &data;
  EXPECT_EQ(cotune_memory_allocate(group_, 4096, &data), COTUNE_ERROR_UNSUPPORTED);
  EXPECT_EQ(data, nullptr);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("host memory is not registered"));
  EXPECT_EQ(cotune_memory_allocate(group_, 0, &data), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_allocate(group_, 4096, nullptr), COTUNE_ERROR_USAGE);
  char own[64];
  EXPECT_EQ(cotune_memory_register(group_, own, sizeof(own)), COTUNE_ERROR_UNSUPPORTED);
  EXPECT_THAT(cotune_last_error(group_), AllOf(HasSubstr("no backend takes registered memory"),
                                               HasSubstr("memory extension not offered")));
  EXPECT_EQ(cotune_memory_register(group_, nullptr, 64), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_unregister(group_, own), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_free(group_, own), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_memory_free(group_, nullptr), COTUNE_SUCCESS);
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.is_symmetric = 1;
  EXPECT_EQ(cotune_tune(group_, &options, nullptr), COTUNE_ERROR_UNSUPPORTED);
  // The group goes on.
  float sent = 3;
  float received = 0;
  EXPECT_EQ(cotune_all_reduce(group_, &sent, &received, 1, COTUNE_F32, COTUNE_REDUCE_SUM),
            COTUNE_SUCCESS);
  EXPECT_EQ(received, 3);
}

TEST_F(OneProcessTest, ASplitThatFailsIsTheParentsLastError) {
  cotune_group* part = nullptr;
  const int32_t rank = 3;
  EXPECT_EQ(cotune_group_split(group_, "part", &rank, 1, &part, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_EQ(part, nullptr);
  EXPECT_EQ(cotune_last_result(group_), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("rank 3"));
}

TEST_F(OneProcessTest, ExplainsByWhatWasMeasuredHere) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  const size_t own_count = entries.size();
  for (size_t i = 0; i < own_count; ++i) {
    DatabaseEntry foreign = entries[i];
    foreign.fingerprint.machine["cpu_model"] = "of another machine";
    foreign.winner.why = "it won elsewhere";
    DatabaseEntry other_class = entries[i];
    other_class.cell.problem.cls.in_place = true;
    other_class.winner.why = "it won in place";
    entries[i].winner.why = "it won here";
    entries.push_back(std::move(foreign));
    if (other_class.cell.problem.cls.collective == Collective::kAllReduce) {
      entries.push_back(std::move(other_class));
    }
  }
  Write(entries, path);

  cotune_group_destroy(group_);
  group_ = Create();
  ASSERT_EQ(cotune_load(group_, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_THAT(Explained(false), AllOf(HasSubstr("at 4096 bytes: it won here\n"),
                                      Not(HasSubstr("elsewhere")), Not(HasSubstr("in place"))));
  EXPECT_THAT(Explained(true), AllOf(HasSubstr("at 4096 bytes: it won in place\n"),
                                     Not(HasSubstr("elsewhere")), Not(HasSubstr("won here"))));
}

TEST_F(OneProcessTest, RefusesADatabaseOfAnotherMachine) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  for (DatabaseEntry& entry : entries) entry.fingerprint.machine["cpu_model"] = "another";
  Write(entries, path);
  cotune_group_destroy(group_);
  group_ = Create();
  EXPECT_EQ(cotune_load(group_, path.c_str()), COTUNE_ERROR_DATABASE);
  EXPECT_THAT(
      cotune_last_error(group_),
      AllOf(HasSubstr("not valid here: cpu_model: 'another' in the file"), HasSubstr(path)));
  EXPECT_THAT(Explained(false), HasSubstr("not tuned"));
}

TEST_F(OneProcessTest, RefusesCountsThatOverflow) {
  float x = 0;
  float y = 0;
  for (uint64_t count : {uint64_t{1} << 61, uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(cotune_all_reduce(group_, &x, &y, count, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_ERROR_USAGE);
    EXPECT_THAT(cotune_last_error(group_), HasSubstr("elements are too many"));
    const bool is_negative = count > INT64_MAX;
    EXPECT_EQ(std::string(cotune_last_error(group_)).find("negative") != std::string::npos,
              is_negative)
        << cotune_last_error(group_);
  }
  // Not too many for a group of this size.
  EXPECT_EQ(
      cotune_all_reduce(group_, nullptr, nullptr, uint64_t{1} << 60, COTUNE_F32, COTUNE_REDUCE_SUM),
      COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("buffer is NULL"));
  x = 5;
  EXPECT_EQ(cotune_all_reduce(group_, &x, &y, 1, COTUNE_F32, COTUNE_REDUCE_SUM), COTUNE_SUCCESS);
  EXPECT_EQ(y, 5);
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

TEST_F(OneProcessTest, SizesWithoutAnElementAreLeftOutOfATune) {
  const std::string path = folder_ + "/tuned.tdb";
  const uint64_t sizes[] = {0, 3, kSizeBytes};
  cotune_tune_options tune{};
  tune.struct_size = sizeof(tune);
  tune.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
  tune.sizes_bytes = sizes;
  tune.size_count = 3;
  tune.database_path = path.c_str();
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  ASSERT_EQ(cotune_tune(group_, &tune, &report), COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_EQ(report.measured, 1);
  EXPECT_THAT(log_, Contains("sizes are left out, since they are less than an element for every "
                             "rank: all_reduce f32 0, all_reduce f32 3"));
  ASSERT_EQ(EntriesOf(path).size(), 1u);
  EXPECT_EQ(EntriesOf(path)[0].cell.problem.bytes(), kSizeBytes);
  tune.size_count = 2;
  EXPECT_EQ(cotune_tune(group_, &tune, &report), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_),
              HasSubstr("no size has an element for every rank (cotune_tune_options): all_reduce "
                        "f32 0, all_reduce f32 3; give larger sizes"));

  cotune_tune_node node{};
  node.struct_size = sizeof(node);
  node.collective = COTUNE_COLLECTIVE_BROADCAST;
  node.dtype = COTUNE_F64;
  node.sizes = sizes;
  node.size_count = 3;
  cotune_tune_options of_nodes{};
  of_nodes.struct_size = sizeof(of_nodes);
  of_nodes.nodes = &node;
  of_nodes.node_count = 1;
  ASSERT_EQ(cotune_tune(group_, &of_nodes, &report), COTUNE_SUCCESS) << cotune_last_error(group_);
  EXPECT_EQ(report.measured, 1);
  node.size_count = 1;
  EXPECT_EQ(cotune_tune(group_, &of_nodes, &report), COTUNE_ERROR_USAGE);

  constexpr char kText[] = "program sum; %x = input f32 [R, 8]; %y = all_reduce sum %x; return %y";
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_program* program = nullptr;
  ASSERT_EQ(cotune_program_parse(kText, sizeof(kText) - 1, &program, &error), COTUNE_SUCCESS)
      << error.text;
  node = {};
  node.struct_size = sizeof(node);
  node.program = program;
  node.sizes = sizes;
  node.size_count = 1;
  EXPECT_EQ(cotune_tune(group_, &of_nodes, &report), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("a program cannot have 0 rows (sum); give"));
  cotune_program_free(program);
}

// As an older cotune has left it.
TEST_F(OneProcessTest, ARowOfSizeZeroIsNotUsedForOtherSizes) {
  const std::string path = folder_ + "/tuned.tdb";
  Tune(path, false);
  std::vector<DatabaseEntry> entries = EntriesOf(path);
  ASSERT_EQ(entries.size(), 2u);
  for (DatabaseEntry& entry : entries) entry.cell.problem.count = 0;
  const std::string of_zero = folder_ + "/zero.tdb";
  Write(entries, of_zero);
  cotune_group_destroy(group_);
  group_ = Create();
  EXPECT_EQ(cotune_load(group_, of_zero.c_str()), COTUNE_ERROR_DATABASE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("all entries are for calls of 0 bytes"));
  EXPECT_THAT(Explained(false), HasSubstr("not tuned"));
}

TEST_F(OneProcessTest, ExplainRefusesWhatCannotBe) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_GATHER;
  call.dtype = COTUNE_F32;
  EXPECT_EQ(cotune_explain(group_, nullptr, nullptr, 0, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("the call is NULL"));
  EXPECT_EQ(cotune_explain(group_, &call, nullptr, 1, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("the buffer is NULL"));
  call.struct_size = sizeof(call) + 8;
  EXPECT_EQ(cotune_explain(group_, &call, nullptr, 0, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("struct_size is"));
  call.struct_size = sizeof(call);
  call.collective = 6;
  EXPECT_EQ(cotune_explain(group_, &call, nullptr, 0, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("collective 6"));
}

}  // namespace
}  // namespace cotune
