// A group of one process, with a tuned database of its own.
#ifndef COTUNE_INTEGRATION_CAPI_TESTING_ONE_PROCESS_H_
#define COTUNE_INTEGRATION_CAPI_TESTING_ONE_PROCESS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/database/tuned_database.h"
#include "integration/capi/cotune.h"
#include "nlohmann/json.hpp"

namespace cotune {

// The size that is tuned, and its elements.
inline constexpr uint64_t kSizeBytes = 4096;
inline constexpr uint64_t kCount = kSizeBytes / sizeof(float);

// A group of this process alone. The plugin is a copy in a folder of the test's own: it counts only
// as a file that nobody else may write.
class OneProcessTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void CallOnce();
  cotune_group* Create(const cotune_functions* functions = nullptr);
  // Tunes all_reduce and broadcast. path "": without a database.
  cotune_tune_report Tune(const std::string& path, bool is_in_place,
                          uint64_t size_bytes = kSizeBytes);
  // The choice of an all_reduce, explained.
  std::string Explained(bool is_in_place, uint64_t count = kCount) const;
  nlohmann::json ExplainedAsJson(uint64_t count) const;

  static std::vector<DatabaseEntry> EntriesOf(const std::string& path);
  // Writes these entries, and nothing else, to the path.
  static void Write(const std::vector<DatabaseEntry>& entries, const std::string& path);

  std::string folder_;
  cotune_group* group_ = nullptr;
  std::vector<std::string> log_;  // lines of all groups
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_CAPI_TESTING_ONE_PROCESS_H_
