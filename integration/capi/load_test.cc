// A tuned database loaded by one process: what is taken from it, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/database/tuned_database.h"
#include "integration/capi/cotune.h"
#include "integration/capi/testing/one_process.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace cotune
