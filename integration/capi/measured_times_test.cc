// Every rank explains a result with the time of its measurement, though only rank 0 has the file.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/database/tuned_database.h"
#include "integration/capi/cotune.h"
#include "integration/capi/testing/function_ranks.h"
#include "nlohmann/json.hpp"

namespace cotune {
namespace {

constexpr uint32_t kAllReduceOnly = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
constexpr int64_t kLongAgo = 1'000'000;

// Gives all results of the file this time.
void Date(const std::string& path, int64_t unix_s) {
  const Result<TunedDatabase> database = TunedDatabase::Load(path);
  ASSERT_TRUE(database) << database.error().ToText();
  const Result<std::vector<DatabaseEntry>> entries = database->entries();
  ASSERT_TRUE(entries) << entries.error().ToText();
  TunedDatabase dated;
  for (DatabaseEntry entry : *entries) {
    EXPECT_GT(entry.measured_unix_s, unix_s);
    entry.measured_unix_s = unix_s;
    dated.Put(entry);
  }
  const Status saved = dated.Save(path);
  ASSERT_TRUE(saved) << saved.error().ToText();
}

TEST(MeasuredTimesTest, AreThoseOfTheFileOnAllRanks) {
  setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "10s", 1);
  setenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS", "10", 1);
  setenv("COTUNE_KEEP_UNSTEADY", "on", 1);
  FunctionRanks ranks(3);
  const std::string path = ranks.folder + "/tuned.tdb";
  std::vector<int64_t> times(3);
  const auto tune = [&](int rank, cotune_group* group) {
    EXPECT_EQ(TuneFloats(group, kAllReduceOnly, path.c_str()), COTUNE_SUCCESS)
        << cotune_last_error(group);
    const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, 256);
    ASSERT_EQ(explained["measured"].size(), 1u) << explained;
    times[static_cast<size_t>(rank)] = explained["measured"][0]["measured_unix_s"];
  };
  ranks.Run(tune);
  for (const int64_t unix_s : times) EXPECT_GT(unix_s, kLongAgo);
  ASSERT_NO_FATAL_FAILURE(Date(path, kLongAgo));
  ranks.Run(tune);
  EXPECT_EQ(times, std::vector<int64_t>(3, kLongAgo));
}

}  // namespace
}  // namespace cotune
