// A call without elements posts nothing, but ends only when all that its rank sent before has left,
// and by its deadline.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/inner_rank.h"
#include "plugins/ucx/worker.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 2;
constexpr int kSender = 0;
constexpr int kSilent = 1;  // reads nothing
constexpr uint64_t kTagOfNobody = 1;
constexpr size_t kMessagesMax = 16384;
// If the data have not left after so many polls, they wait for the other rank.
constexpr int kPolls = 10'000;

enum Event { kNamed };

bool HasLeft(Worker& worker) {
  for (int i = 0; i < kPolls; ++i) {
    if (worker.IsSent()) return true;
    worker.Progress();
  }
  return false;
}

// Sends messages until the way to the silent rank is full. Returns what went wrong.
std::string FillTheWay(InnerRank& rank) {
  const auto data = std::make_shared<std::vector<uint8_t>>(4 << 10);
  const auto requests = std::make_shared<RequestPool>(*rank.context(), kMessagesMax);
  rank.group().Keep(data);
  rank.group().Keep(requests);
  Worker& worker = rank.group().worker();
  for (size_t i = 0; i < kMessagesMax; ++i) {
    worker.Send((*requests)[i], kSilent, data->data(), data->size(), kTagOfNobody, nullptr);
    if (!HasLeft(worker)) return "";
  }
  return "the silent rank has taken all messages";
}

TEST(CallsWithoutElementsTest, OneThatWaitsForARankThatDoesNotReadEndsAtItsDeadline) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int number) -> std::string {
    InnerRank rank(job.host(), number, kRanks);
    if (!rank.wrong().empty()) return rank.wrong();
    if (number == kSilent) {
      job.Await(kNamed);
      return "";
    }
    std::string wrong = FillTheWay(rank);
    std::vector<uint8_t> none;
    rank.Begin("chain", kSender, none, 2 * kSecondNs);
    const Advance advance = rank.Finish();
    job.Post(kNamed);
    if (!wrong.empty()) return wrong;
    if (advance == Advance::kComplete) return "the call is complete";
    if (advance == Advance::kInProgress) return "the call has missed its deadline";
    const Failure failure = *rank.group().Health();
    return failure.status == COTUNE_PEER_FAILED && failure.failed_rank == kSilent ? ""
                                                                                  : failure.message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::ucx
