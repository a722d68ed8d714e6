// A process that may open few files gets an error instead of UCX's abort, and its peers learn why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "plugins/testing/rank_processes.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int64_t kLongNs = 60 * kSecondNs;

// Makes a group in which rank `limited`, or every rank where it is -1, may open `files`, and keeps
// the reports of all ranks.
class LimitedGroup {
 public:
  LimitedGroup(int limited, rlim_t files)
      : ranks_(kRanks, [this, limited, files](int rank) -> std::string {
          if (limited < 0 || rank == limited) {
            const struct rlimit limit = {files, files};
            if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return "no limit can be set";
          }
          const GroupForTest group(job_.host(), "limited", rank, AllRanks(kRanks),
                                   MonotonicNs() + kLongNs);
          if (group.status() == COTUNE_OK) return "";
          return std::to_string(group.status()) + ": " + group.error().message;
        }) {}
  std::string ReportOf(int rank) { return ranks_.Wait(rank); }

 private:
  JobForTest job_;
  RankProcesses ranks_;
};

TEST(OpenFilesTest, ARankWithTooFewIsRefusedAndAllLearnOfIt) {
  LimitedGroup group(1, 30);
  const std::string out_of_resources = std::to_string(COTUNE_OUT_OF_RESOURCES) + ": ";
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string report = group.ReportOf(rank);
    EXPECT_THAT(report, HasSubstr("the process may open 30 files and has ")) << rank;
    EXPECT_THAT(report, HasSubstr("UCX may need 44 more for a group of 3 ranks")) << rank;
    EXPECT_THAT(report, HasSubstr("`ulimit -n 1024`")) << rank;
    if (rank == 1) {
      EXPECT_THAT(report, HasSubstr(out_of_resources));
    }
  }
}

TEST(OpenFilesTest, WithAsManyAsAreAskedForTheGroupIsMade) {
  LimitedGroup group(-1, 64);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(group.ReportOf(rank), "") << rank;
}

}  // namespace
}  // namespace cotune::ucx
