// A call that has returned success needs no later call of its rank: all that it sent has left, also
// if nobody reads it for long.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kSender = 0;
constexpr int64_t kLongNs = 60 * kSecondNs;
// A message that does not come within this time has not left its sender.
constexpr int64_t kShortNs = 5 * kSecondNs;
// A call of the sender that takes longer waits for a rank that does not read.
constexpr int64_t kWaitingNs = kSecondNs / 2;
constexpr cotune_dtype_t kByte = {COTUNE_DTYPE_UINT, 8, 1};

enum Event { kFull, kReceived, kNamed };

// A key in the store: how many calls of the sender have returned success.
constexpr char kCalls[] = "calls";

uint8_t ValueOf(int call) { return static_cast<uint8_t>(call % 251 + 1); }

// The broadcasts of one rank, one after the other.
class Broadcasts {
 public:
  Broadcasts(const GroupForTest& group, int ranks, const char* choice, uint64_t bytes)
      : group_(group),
        problem_(AbiProblem(COTUNE_BROADCAST, kByte, COTUNE_REDUCTION_NONE, bytes, ranks, kSender,
                            true)),
        choice_(choice),
        data_(bytes) {}
  ~Broadcasts() { End(); }
  Broadcasts(const Broadcasts&) = delete;
  Broadcasts& operator=(const Broadcasts&) = delete;

  // Begins the next call.
  void Begin(uint8_t value, int64_t timeout_ns) {
    End();
    data_.assign(data_.size(), value);
    status_ = api_.prepare(group_.group(), &problem_, choice_, 0, &plan_, &error_);
    if (status_ != COTUNE_OK) return;
    const cotune_launch_t launch{.struct_size = sizeof(launch),
                                 .flags = 0,
                                 .send = data_.data(),
                                 .recv = data_.data(),
                                 .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                 .deadline_ns = MonotonicNs() + timeout_ns};
    status_ = api_.launch(plan_, &launch, &error_);
    if (status_ == COTUNE_OK) status_ = COTUNE_IN_PROGRESS;
  }
  // Returns the status of the call when it has ended, or after the time.
  cotune_status_t Run(int64_t for_ns) {
    const int64_t end_ns = MonotonicNs() + for_ns;
    while (status_ == COTUNE_IN_PROGRESS && MonotonicNs() < end_ns) {
      status_ = api_.progress(plan_, end_ns, &error_);
    }
    return status_;
  }
  bool Has(uint8_t value) const { return data_ == std::vector<uint8_t>(data_.size(), value); }
  const cotune_error_t& error() const { return error_; }

 private:
  void End() {
    api_.plan_destroy(plan_);
    plan_ = nullptr;
  }

  const GroupForTest& group_;
  const cotune_backend_api_t& api_ = *Tested().api;
  const cotune_problem_t problem_;
  const char* const choice_;
  std::vector<uint8_t> data_;
  cotune_plan_t* plan_ = nullptr;
  cotune_status_t status_ = COTUNE_OK;
  cotune_error_t error_ = EmptyError();
};

// Calls until one has to wait for the receiver, and then polls no more. Returns the number of calls
// that were complete; the next one is in progress.
int FillTheWay(Broadcasts& broadcasts) {
  int calls = 0;
  while (true) {
    broadcasts.Begin(ValueOf(calls), kLongNs);
    if (broadcasts.Run(kWaitingNs) != COTUNE_OK) return calls;
    ++calls;
  }
}

class UnsentMessagesTest : public testing::TestWithParam<uint64_t> {
 protected:
  JobForTest job_;
};

TEST_P(UnsentMessagesTest, ARankThatPollsNoMoreHasSentWhatItsCallsSent) {
  constexpr int kRanks = 2;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    const cotune_host_t& host = job_.host();
    const GroupForTest group(host, "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    Broadcasts broadcasts(group, kRanks, "chain", GetParam());
    int calls = 0;
    if (rank == kSender) {
      calls = FillTheWay(broadcasts);
      host.store_put(host.context, kCalls, &calls, sizeof(calls));
      job_.Post(kFull);
      job_.Await(kReceived);
      return broadcasts.Run(kLongNs) == COTUNE_OK ? "" : broadcasts.error().message;
    }
    job_.Await(kFull);
    uint64_t size = 0;
    host.store_get(host.context, kCalls, &calls, sizeof(calls), &size, 0);
    std::string wrong = calls > 0 ? "" : "the first call had to wait";
    for (int call = 0; call < calls && wrong.empty(); ++call) {
      broadcasts.Begin(0, kShortNs);
      if (broadcasts.Run(kLongNs) != COTUNE_OK) {
        wrong = "call " + std::to_string(call) + " of " + std::to_string(calls) + ": " +
                broadcasts.error().message;
      } else if (!broadcasts.Has(ValueOf(call))) {
        wrong = "wrong data";
      }
    }
    job_.Post(kReceived);
    if (!wrong.empty()) return wrong;
    broadcasts.Begin(0, kLongNs);
    return broadcasts.Run(kLongNs) == COTUNE_OK ? "" : broadcasts.error().message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Bytes, UnsentMessagesTest, testing::Values(1 << 10, 4 << 10, 7 << 10),
                         testing::PrintToStringParamName());

// Rank 1 takes every message; rank 2 takes none, so that the sender's calls wait for it alone.
TEST(UnsentMessagesNamesTest, TheRankThatDoesNotReadIsNamed) {
  constexpr int kRanks = 3;
  constexpr int kSlow = 2;
  constexpr uint64_t kBytes = 4 << 10;
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    if (rank == kSlow) {
      job.Await(kNamed, 2);
      return "";
    }
    Broadcasts broadcasts(group, kRanks, "knomial?radix=2", kBytes);
    cotune_status_t status = COTUNE_OK;
    while (status == COTUNE_OK) {
      broadcasts.Begin(1, 2 * kSecondNs);
      status = broadcasts.Run(kLongNs);
    }
    job.Post(kNamed);
    const cotune_error_t& error = broadcasts.error();
    return status == COTUNE_PEER_FAILED && error.failed_rank == kSlow ? "" : error.message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::ucx
