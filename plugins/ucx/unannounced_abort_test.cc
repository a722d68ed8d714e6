// An abort on one thread while another one uses the worker for long: the abort returns without
// having reached the other ranks, and they learn of it, once, when the worker is used again.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/inner_rank.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 3;
constexpr int kWaiting = 0;
constexpr int kAborting = 1;
constexpr int kRoot = 2;  // It makes no call, so that the others' calls cannot end.
constexpr char kChoice[] = "chain";
constexpr uint64_t kBytes = 100;

enum Event { kWaits, kHeard };

// The failures of the group that this process has put into the store, as it does with each one that
// it announces.
int announcements = 0;

cotune_status_t CountAnnouncements(void* context, const char* key, const void* data,
                                   uint64_t size) {
  if (std::string_view(key).ends_with("/given_up")) ++announcements;
  return static_cast<JobForTest*>(context)->host().store_put(context, key, data, size);
}

void AbortWhileTheWorkerIsUsed(Group& group) {
  const auto lock = group.UseWorker();
  std::thread aborter([&] { group.Abort(); });
  aborter.join();
}

// Tells if the rank that aborts has a call in flight, which progresses afterwards. Without one the
// next use of the worker is a look at its connections.
class UnannouncedAbortTest : public testing::TestWithParam<bool> {
 protected:
  std::string AbortAndGoOn(InnerRank& rank, std::vector<uint8_t>& data) {
    Group& group = rank.group();
    if (GetParam()) rank.Begin(kChoice, kRoot, data);
    job_.Await(kWaits);
    AbortWhileTheWorkerIsUsed(group);
    const auto failure = group.Health();
    if (!failure || failure->status != COTUNE_ABORTED) return "the group is not aborted";
    if (announcements != 0) return "the abort was announced while the worker was used";
    if (!GetParam()) {
      group.TransportsTo(kWaiting);
    } else if (rank.Poll() != Advance::kFailed) {
      return "the call did not fail";
    }
    group.Abort();
    group.TransportsTo(kWaiting);
    return announcements == 1 ? "" : std::to_string(announcements) + " announcements";
  }

  std::string WaitForTheAbort(InnerRank& rank, std::vector<uint8_t>& data) {
    rank.Begin(kChoice, kRoot, data);
    const bool waits = rank.Poll() == Advance::kInProgress;
    job_.Post(kWaits);
    if (!waits) return "the call did not wait";
    if (rank.Finish() != Advance::kFailed) return "the call did not fail";
    const Failure failure = *rank.group().Health();
    const bool is_named =
        failure.message.find("job rank 1 (rank 1 of the group) aborted") != std::string::npos;
    return failure.status == COTUNE_ABORTED && is_named ? "" : failure.message;
  }

  JobForTest job_;
};

TEST_P(UnannouncedAbortTest, ReachesTheOthersWhenTheWorkerIsUsedAgain) {
  RankProcesses ranks(kRanks, [&](int number) -> std::string {
    cotune_host_t host = job_.host();
    host.store_put = CountAnnouncements;
    std::vector<uint8_t> data(kBytes);
    InnerRank rank(host, number, kRanks);
    if (!rank.wrong().empty()) return rank.wrong();
    std::string wrong;
    if (number == kAborting) wrong = AbortAndGoOn(rank, data);
    if (number == kWaiting) {
      wrong = WaitForTheAbort(rank, data);
      job_.Post(kHeard);
    }
    // A rank that ends its group earlier would be named for that.
    job_.Await(kHeard);
    return wrong;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Next, UnannouncedAbortTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return std::string(info.param ? "ProgressOfACall" : "NoCall");
                         });

}  // namespace
}  // namespace cotune::ucx
