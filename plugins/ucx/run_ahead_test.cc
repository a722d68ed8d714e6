// A root that broadcasts in a loop waits for a rank that does not follow: its messages do not
// gather without end in the memory of the ranks between.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 3;
constexpr int kCalls = 150;
constexpr uint64_t kBytes = 1 << 20;
constexpr int64_t kLongNs = 120 * kSecondNs;
// The root waits when nothing has become of its call for so long, or has made all calls.
constexpr int64_t kWaitingNs = kSecondNs;

enum Event { kRootWaits };

cotune_problem_t Broadcast() {
  constexpr cotune_dtype_t kBytesType = {COTUNE_DTYPE_UINT, 8, 1};
  return AbiProblem(COTUNE_BROADCAST, kBytesType, COTUNE_REDUCTION_NONE, kBytes, kRanks);
}

// All calls of the root. Returns how many were complete when it had to wait.
class Root {
 public:
  Root(const GroupForTest& group, JobForTest& job) : group_(group), job_(job) {}

  std::string Run() {
    for (int call = 0; call < kCalls; ++call) {
      if (std::string wrong = Call(call); !wrong.empty()) return wrong;
    }
    if (has_waited_) return "";
    job_.Post(kRootWaits);
    return "the root has made all calls and never waited";
  }

 private:
  std::string Call(int call) {
    const cotune_backend_api_t& api = *Tested().api;
    const cotune_problem_t problem = Broadcast();
    const std::vector<uint8_t> send(kBytes, static_cast<uint8_t>(call));
    std::vector<uint8_t> receive(kBytes);
    cotune_error_t error = EmptyError();
    cotune_plan_t* plan = nullptr;
    if (api.prepare(group_.group(), &problem, "chain", 0, &plan, &error) != COTUNE_OK) {
      return error.message;
    }
    const cotune_launch_t launch{.struct_size = sizeof(launch),
                                 .flags = 0,
                                 .send = send.data(),
                                 .recv = receive.data(),
                                 .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                 .deadline_ns = MonotonicNs() + kLongNs};
    cotune_status_t status = api.launch(plan, &launch, &error);
    while (status == COTUNE_OK) {
      status = api.progress(plan, MonotonicNs() + kWaitingNs, &error);
      if (status != COTUNE_IN_PROGRESS) break;
      if (!has_waited_) job_.Post(kRootWaits);
      has_waited_ = true;
      status = COTUNE_OK;
    }
    api.plan_destroy(plan);
    return status == COTUNE_OK ? "" : error.message;
  }

  const GroupForTest& group_;
  JobForTest& job_;
  bool has_waited_ = false;
};

std::string Follow(const GroupForTest& group) {
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<uint8_t> send(kBytes, 0xff);
    std::vector<uint8_t> receive(kBytes);
    cotune_error_t error = EmptyError();
    const cotune_status_t status = RunOnce(group.group(), Broadcast(), "chain", send.data(),
                                           receive.data(), MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return error.message;
    if (receive != std::vector<uint8_t>(kBytes, static_cast<uint8_t>(call))) return "wrong bytes";
  }
  return "";
}

// Rank 1 hands on to rank 2, which does not come before the root waits.
TEST(RunAheadTest, TheRootWaitsForARankThatDoesNotFollow) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    if (rank == 0) return Root(group, job).Run();
    if (rank == 2) job.Await(kRootWaits);
    return Follow(group);
  });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks.Wait(rank), "") << rank;
}

}  // namespace
}  // namespace cotune::ucx
