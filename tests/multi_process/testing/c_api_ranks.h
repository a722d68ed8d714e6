// The code that tests of the C API start in the processes of their ranks: only cotune.h, the shared
// library and plugins.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_RANKS_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_RANKS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {

constexpr int64_t kLongCallNs = 600 * kSecondNs;  // far longer than any test may take

inline constexpr int64_t kPatienceNs = 120 * kSecondNs;

class CApiRanks : public ::testing::Test {
 protected:
  CApiRanks();

  void SetFakeScript(const std::string& script) const;

  // A plugin counts only as a file that nobody else may write. `from` is the folder of its target;
  // empty: plugins/NAME.
  static void CopyPlugin(const std::string& name, const std::string& folder,
                         const std::string& from = "");

  // Reports the error where it fails, and what the library logs of its table and of
  // programs.
  cotune_group* Create(int rank, int world_size, TestLink& link,
                       const std::string& plugins = "") const;

  const PrivateFolder folder_;
  const std::string plugins_ = folder_.path() + "/plugins";
  const std::string fake_plugins_ = folder_.path() + "/fake";
  std::string socket_ = folder_.path() + "/s";  // another one for each group of all ranks
  std::string database_ = folder_.path() + "/tuned.tdb";
  const char* backends_ = nullptr;  // nullptr: all
  const char* force_ = nullptr;     // as in cotune_group_options
  int ignores_database_on_ = -1;
  int64_t call_timeout_ns_ = kLongCallNs;
};

// Reports the error where it fails.
cotune_group* Split(cotune_group* group, const char* name, const std::vector<int32_t>& ranks,
                    TestLink& link);
// Reports "WHAT CODE ERROR".
void Say(TestLink& link, const char* what, const cotune_group* group, cotune_result result);
// COTUNE_ERROR_WRONG_RESULT for success with a wrong sum.
cotune_result Reduce(cotune_group* group, uint64_t count = 64);
cotune_result Tune(cotune_group* group, uint64_t bytes, const char* database = nullptr,
                   cotune_tune_report* report = nullptr);
std::string Explained(cotune_group* group, uint64_t count = 64);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_RANKS_H_
