// A tune of one process: the sizes that it measures, and what is kept of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/database/tuned_database.h"
#include "core/database/tuned_database_lock.h"
#include "integration/capi/cotune.h"
#include "integration/capi/testing/one_process.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// A process alone has one choice only: the log of the first call counts the sizes.
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

}  // namespace
}  // namespace cotune
