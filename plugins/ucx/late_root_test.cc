// A root that waits for nobody and has not ended its call by the deadline is late itself: it names
// itself, and so does every other rank.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/inner_rank.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 3;
constexpr int kRoot = 0;
constexpr int kOther = 1;
// The root sends in several steps, one at each look, and receives nothing.
constexpr char kChoice[] = "scatter_gather";
// A message of so few bytes is complete at once.
constexpr uint64_t kBytes = 600;

// The first call has ended on rank 1, on rank 2; the root has named itself; another rank knows it.
enum Event { kEndedOnOne, kEndedOnTwo, kNamed, kHeard };

// Empty if the call failed and the rank's group names the root alone.
std::string WhyRootIsNotNamed(Advance advance, const Group& group) {
  if (advance != Advance::kFailed) return "the call did not fail";
  const Failure failure = *group.Health();
  const bool is_named =
      failure.status == COTUNE_PEER_FAILED && failure.failed_rank == kRoot &&
      failure.message == "job rank 0 (rank 0 of the group) did not come before the deadline";
  return is_named ? "" : failure.message;
}

TEST(LateRootTest, ARootThatWaitsForNobodyAtItsDeadlineIsNamed) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int number) -> std::string {
    std::vector<uint8_t> data(kBytes);
    InnerRank rank(job.host(), number, kRanks);
    if (!rank.wrong().empty()) return rank.wrong();
    // After a first call every connection sends at once.
    rank.Begin(kChoice, kRoot, data);
    std::string wrong = rank.FinishText();
    if (number != kRoot) job.Post(number == 1 ? kEndedOnOne : kEndedOnTwo);
    if (number == kRoot && wrong.empty()) {
      job.Await(kEndedOnOne);
      job.Await(kEndedOnTwo);
      rank.Begin(kChoice, kRoot, data, 0);
      // The first poll looks at the clock when some steps are left.
      wrong = WhyRootIsNotNamed(rank.Poll(), rank.group());
    }
    if (number == kRoot) job.Post(kNamed);
    if (number == kOther && wrong.empty()) {
      job.Await(kNamed);
      rank.Begin(kChoice, kRoot, data);
      wrong = WhyRootIsNotNamed(rank.Finish(), rank.group());
    }
    if (number == kOther) job.Post(kHeard);
    // A rank that ends its group earlier would be named for that.
    job.Await(kHeard);
    return wrong;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::ucx
