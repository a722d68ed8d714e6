// UCX listens on ports that anyone may send to: a rank of another job with a group of the same name
// has no influence on this one.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/control.h"
#include "plugins/ucx/tag.h"
#include "plugins/ucx/testing/inner_rank.h"
#include "plugins/ucx/worker.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 2;
constexpr int kForeign = 2;  // not in the group
constexpr char kAddress[] = "address";

enum Event { kListening, kSent };

// Sends the failure that a rank of a group with this name sent before groups of two jobs differed.
std::string SendFailure(const JobForTest& job) {
  std::array<char, 4096> address{};
  uint64_t size = 0;
  job.host().store_get(job.host().context, kAddress, address.data(), address.size(), &size, 0);
  auto context = Context::Open(sdk::Settings(job.host(), "ucx"));
  if (!context) return context.error().message;
  const std::shared_ptr<const Context> shared = std::move(*context);
  RequestPool requests(*shared, 1);
  auto worker = Worker::Create(shared);
  if (!worker) return worker.error().message;
  auto connected = (*worker)->Connect(1, {std::string(address.data(), size), ""});
  if (!connected) return connected.error().message;
  const uint64_t digest = XXH64("g", 1, 0);
  ControlMessage message;
  message.kind = ControlMessage::Kind::kFailure;
  message.sender = 1;
  message.group = digest;
  message.failure = {.kind = GroupFailure::Kind::kDied, .culprit = 1, .reporter = 1};
  uint32_t open = 0;
  (*worker)->Send(requests[0], 0, &message, sizeof(message), ControlTag(digest), &open,
                  Completion::kSent);
  while (open > 0 || !(*worker)->IsSent()) (*worker)->Progress();
  return requests[0].status() == UCS_OK ? "" : "the message was not sent";
}

TEST(ForeignMessagesTest, AFailureOfAnotherJobDoesNotCount) {
  JobForTest job;
  RankProcesses ranks(kRanks + 1, [&](int number) -> std::string {
    if (number == kForeign) {
      job.Await(kListening);
      std::string wrong = SendFailure(job);
      job.Post(kSent);
      return wrong;
    }
    std::vector<uint8_t> data(100, number == 0 ? 0 : 5);
    InnerRank rank(job.host(), number, kRanks);
    if (!rank.wrong().empty()) return rank.wrong();
    if (number == 0) {
      const auto address = rank.group().worker().Address();
      job.host().store_put(job.host().context, kAddress, address->data(), address->size());
      job.Post(kListening);
    }
    // Rank 0 polls in its call, which takes the foreign message, until rank 1 begins its own.
    if (number == 1) job.Await(kSent);
    rank.Begin("chain", 1, data);
    const std::string wrong = rank.FinishText();
    if (!wrong.empty()) return wrong;
    return data == std::vector<uint8_t>(100, 5) ? "" : "wrong data";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::ucx
