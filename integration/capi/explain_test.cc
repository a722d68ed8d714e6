// Explanations of the choice of a call, as text and as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/database/tuned_database.h"
#include "integration/capi/cotune.h"
#include "integration/capi/testing/one_process.h"
#include "nlohmann/json.hpp"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
