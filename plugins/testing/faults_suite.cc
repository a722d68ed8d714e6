// Ranks that die, stop, come late, leave or abort: everyone else learns which, in bounded time.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::backend_test {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int64_t kShortNs = 2 * kSecondNs;
constexpr uint64_t kCount = 5000;
const std::vector<int32_t> kMembers = {10, 11, 12, 13};  // job ranks, to tell them from group ranks
constexpr int kRanks = 4;
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};

enum Event { kRunning, kInside, kGo, kDone };

cotune_problem_t AllReduceProblem(int world_size = kRanks) {
  return AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, kCount, world_size);
}

std::string Describe(cotune_status_t status, const cotune_error_t& error) {
  return "status " + std::to_string(status) + " rank " + std::to_string(error.failed_rank) + ": " +
         error.message;
}

// Empty when the call failed because of group rank `rank`, with `word` in the message.
std::string ExpectPeerFailed(cotune_status_t status, const cotune_error_t& error, int rank,
                             const std::string& word) {
  const std::string message = error.message;
  const std::string name = "job rank " + std::to_string(kMembers[static_cast<size_t>(rank)]) + " ";
  const bool named =
      message.find(name) != std::string::npos && message.find(word) != std::string::npos;
  return status == COTUNE_PEER_FAILED && error.failed_rank == rank && named
             ? ""
             : Describe(status, error);
}

// Runs the collective again and again until it fails, and returns how. Calls `after` after each
// one.
template <class After>
cotune_status_t RunUntilFailure(const GroupForTest& group, const cotune_problem_t& problem,
                                const std::string& choice, int64_t timeout_ns,
                                cotune_error_t& error, After after) {
  std::vector<float> send(problem.bytes / sizeof(float), 1);
  std::vector<float> receive(send.size());
  cotune_status_t status = COTUNE_OK;
  while (status == COTUNE_OK) {
    status = RunOnce(group.group(), problem, choice.c_str(), send.data(), receive.data(),
                     MonotonicNs() + timeout_ns, &error);
    if (status == COTUNE_OK) after();
  }
  return status;
}

class VictimTest : public testing::TestWithParam<Fault> {
 protected:
  static cotune_problem_t Problem() {
    const uint32_t collective = GetParam().collective;
    const bool reduces = collective == COTUNE_ALL_REDUCE || collective == COTUNE_REDUCE_SCATTER;
    return AbiProblem(collective, kF32, reduces ? uint32_t{COTUNE_SUM} : 0u, kCount, kRanks);
  }

  // All ranks but the victim run until they fail; what they say must blame the victim.
  static std::string Rank(const JobForTest& job, int rank, int64_t timeout_ns, const char* word,
                          JobForTest& events) {
    GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    cotune_error_t error = EmptyError();
    int done = 0;
    const cotune_status_t status =
        RunUntilFailure(group, Problem(), GetParam().choice, timeout_ns, error, [&] {
          if (rank == GetParam().victim && ++done == 20) events.Post(kRunning);
        });
    return ExpectPeerFailed(status, error, GetParam().victim, word);
  }
};

TEST_P(VictimTest, KilledInTheMiddleIsNamedByAll) {
  JobForTest job;
  const int victim = GetParam().victim;
  RankProcesses ranks(kRanks, [&](int rank) { return Rank(job, rank, kLongNs, "died", job); });
  job.Await(kRunning);
  ranks.Kill(victim, SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.Wait(rank), rank == victim ? "signal 9" : "") << "rank " << rank;
  }
}

TEST_P(VictimTest, StoppedInTheMiddleIsNamedByAllAtTheDeadline) {
  JobForTest job;
  const int victim = GetParam().victim;
  RankProcesses ranks(kRanks, [&](int rank) { return Rank(job, rank, kShortNs, "deadline", job); });
  job.Await(kRunning);
  ranks.Kill(victim, SIGSTOP);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks.Wait(rank), "") << "rank " << rank;
  }
  // Going on, it finds itself named.
  ranks.Kill(victim, SIGCONT);
  EXPECT_EQ(ranks.Wait(victim), "");
}

INSTANTIATE_TEST_SUITE_P(Choices, VictimTest, testing::ValuesIn(Tested().faults),
                         [](const testing::TestParamInfo<Fault>& info) { return info.param.name; });

TEST(FaultsTest, KilledInsideTheWaitIsNamed) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
    if (rank == 3) {
      job.Await(kGo);
    } else if (rank == 1) {
      // Inside a collective that cannot end before rank 3 comes.
      const cotune_problem_t problem = AllReduceProblem();
      std::vector<float> send(kCount, 1);
      std::vector<float> receive(kCount);
      cotune_plan_t* plan = nullptr;
      cotune_error_t error = EmptyError();
      const cotune_backend_api_t& api = *Tested().api;
      api.prepare(group.group(), &problem, Tested().large, 0, &plan, &error);
      cotune_launch_t launch{.struct_size = sizeof(launch),
                             .flags = 0,
                             .send = send.data(),
                             .recv = receive.data(),
                             .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                             .deadline_ns = MonotonicNs() + kLongNs};
      api.launch(plan, &launch, &error);
      if (api.progress(plan, 0, &error) != COTUNE_IN_PROGRESS) return "did not wait";
      job.Post(kInside);
      api.progress(plan, launch.deadline_ns, &error);
      return "survived";
    }
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunUntilFailure(group, AllReduceProblem(), Tested().large, kLongNs, error, [] {});
    return ExpectPeerFailed(status, error, 1, "died");
  });
  job.Await(kInside);
  ranks.Kill(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(1), "signal 9");
  job.Post(kGo);
  EXPECT_EQ(ranks.WaitAll(), "");
}

TEST(FaultsTest, RankThatNeverJoinsIsNamed) {
  for (const int absent : {0, 2}) {
    JobForTest job;
    RankProcesses ranks(kRanks, [&](int rank) -> std::string {
      if (rank == absent) return "";
      GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kShortNs);
      return ExpectPeerFailed(group.status(), group.error(), absent, "deadline");
    });
    EXPECT_EQ(ranks.WaitAll(), "") << "without rank " << absent;
  }
}

// The clock that a rank calls for the first time after it has joined and waits for the others.
int64_t ClockThatTells(void* context) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    static_cast<JobForTest*>(context)->Post(kInside);
    while (true) pause();  // until it is killed
  }
  return MonotonicNs();
}

TEST(FaultsTest, KilledWhileJoiningIsNamed) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    // The others must not wait for rank 3 once rank 1 is dead, and it must learn of that too. In a
    // store nobody sees who is dead before all have come.
    if (rank == 3 && Tested().meets_in_memory) job.Await(kGo);
    cotune_host_t host = job.host();
    if (rank == 1) host.now_ns = ClockThatTells;
    GroupForTest group(host, "g", rank, kMembers, MonotonicNs() + kLongNs);
    return ExpectPeerFailed(group.status(), group.error(), 1, "died");
  });
  job.Await(kInside);
  ranks.Kill(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), "");
  EXPECT_EQ(ranks.Wait(2), "");
  job.Post(kGo);
  EXPECT_EQ(ranks.Wait(3), "");
}

TEST(FaultsTest, LateRankIsNamedThroughThoseThatWaitForIt) {
  // In a ring, rank 3 waits for 2, 2 for 1, 1 for 0, and 0 does not come.
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
    if (rank == 0) {
      job.Await(kDone, 3);
      return "";
    }
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunUntilFailure(group, AllReduceProblem(), Tested().ring, kShortNs, error, [] {});
    std::string wrong = ExpectPeerFailed(status, error, 0, "deadline");
    // The failure stays until the group is destroyed.
    cotune_error_t again = EmptyError();
    const cotune_status_t health = Tested().api->group_health(group.group(), &again);
    if (wrong.empty()) wrong = ExpectPeerFailed(health, again, 0, "deadline");
    cotune_plan_t* plan = nullptr;
    const cotune_problem_t problem = AllReduceProblem();
    const cotune_status_t prepared =
        Tested().api->prepare(group.group(), &problem, Tested().ring, 0, &plan, &again);
    if (wrong.empty()) wrong = ExpectPeerFailed(prepared, again, 0, "deadline");
    job.Post(kDone);
    return wrong;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

TEST(FaultsTest, SurvivorsFormANewGroup) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    cotune_error_t error = EmptyError();
    {
      GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
      int done = 0;
      RunUntilFailure(group, AllReduceProblem(), Tested().large, kLongNs, error, [&] {
        if (rank == 3 && ++done == 5) raise(SIGKILL);
      });
    }
    const std::vector<int32_t> survivors = {10, 11, 12};
    GroupForTest group(job.host(), "g-2", rank, survivors, MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    std::vector<float> send(kCount, 2);
    std::vector<float> receive(kCount);
    const cotune_status_t status =
        RunOnce(group.group(), AllReduceProblem(3), Tested().small, send.data(), receive.data(),
                MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return error.message;
    return receive == std::vector<float>(kCount, 6) ? "" : "wrong sum";
  });
  EXPECT_EQ(ranks.WaitAll(), "rank 3: signal 9\n");
}

TEST(FaultsTest, AbortFreesEveryWaiter) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
    if (rank == 3) {  // keeps the others waiting
      job.Await(kDone, 3);
      return "";
    }
    std::thread aborter;
    if (rank == 1) {
      aborter = std::thread([&] {
        job.Await(kInside, 3);
        Tested().api->group_abort(group.group());
        Tested().api->group_abort(group.group());
      });
    }
    job.Post(kInside);
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunUntilFailure(group, AllReduceProblem(), Tested().tree, kLongNs, error, [] {});
    if (aborter.joinable()) aborter.join();
    job.Post(kDone);
    const bool named = std::string(error.message).find("job rank 11 ") != std::string::npos;
    return status == COTUNE_ABORTED && named ? "" : Describe(status, error);
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

TEST(FaultsTest, RankThatLeavesIsNamed) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, kMembers, MonotonicNs() + kLongNs);
    if (rank == 2) return group.status() == COTUNE_OK ? "" : group.error().message;
    // A rank that has not quite joined yet when the others find out learns it there.
    if (group.status() != COTUNE_OK) {
      return ExpectPeerFailed(group.status(), group.error(), 2, "destroyed its group");
    }
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunUntilFailure(group, AllReduceProblem(), Tested().small, kLongNs, error, [] {});
    return ExpectPeerFailed(status, error, 2, "destroyed its group");
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

TEST(FaultsTest, PlanDestroyedInFlightAbortsTheGroup) {
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, {10, 11}, MonotonicNs() + kLongNs);
    // Rank 1 may have aborted before this one has quite joined.
    if (group.status() == COTUNE_ABORTED && rank == 0) return "";
    if (group.status() != COTUNE_OK) return group.error().message;
    const cotune_backend_api_t& api = *Tested().api;
    const cotune_problem_t problem = AllReduceProblem(2);
    std::vector<float> send(kCount, 1);
    std::vector<float> receive(kCount);
    cotune_error_t error = EmptyError();
    if (rank == 0) {
      const cotune_status_t status =
          RunUntilFailure(group, problem, Tested().ring, kLongNs, error, [] {});
      return status == COTUNE_ABORTED ? "" : Describe(status, error);
    }
    cotune_plan_t* plan = nullptr;
    cotune_launch_t launch{.struct_size = sizeof(launch),
                           .flags = 0,
                           .send = send.data(),
                           .recv = receive.data(),
                           .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                           .deadline_ns = MonotonicNs() + kLongNs};
    if (api.prepare(group.group(), &problem, Tested().ring, 0, &plan, &error) != COTUNE_OK ||
        api.launch(plan, &launch, &error) != COTUNE_OK) {
      return error.message;
    }
    api.plan_destroy(plan);
    const cotune_status_t health = api.group_health(group.group(), &error);
    return health == COTUNE_ABORTED ? "" : Describe(health, error);
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

TEST(FaultsTest, ProgressReturnsAtItsTimeAndGoesOnLater) {
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, {10, 11}, MonotonicNs() + kLongNs);
    const cotune_backend_api_t& api = *Tested().api;
    const cotune_problem_t problem = AllReduceProblem(2);
    std::vector<float> send(kCount, static_cast<float>(rank + 1));
    std::vector<float> receive(kCount);
    cotune_error_t error = EmptyError();
    cotune_plan_t* plan = nullptr;
    cotune_launch_t launch{.struct_size = sizeof(launch),
                           .flags = 0,
                           .send = send.data(),
                           .recv = receive.data(),
                           .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                           .deadline_ns = MonotonicNs() + kLongNs};
    if (api.prepare(group.group(), &problem, Tested().large, 0, &plan, &error) != COTUNE_OK) {
      return error.message;
    }
    if (api.progress(plan, 0, &error) != COTUNE_INVALID_ARGUMENT) return "progress before launch";
    if (rank == 1) job.Await(kGo);
    if (api.launch(plan, &launch, &error) != COTUNE_OK) return error.message;
    if (api.launch(plan, &launch, &error) != COTUNE_INVALID_ARGUMENT) return "launched twice";
    if (rank == 0) {
      for (int i = 0; i < 3; ++i) {
        if (api.progress(plan, 0, &error) != COTUNE_IN_PROGRESS) return "not in progress";
      }
      const int64_t until_ns = MonotonicNs() + 50'000'000;
      if (api.progress(plan, until_ns, &error) != COTUNE_IN_PROGRESS) return "not in progress";
      if (MonotonicNs() < until_ns) return "gave up early";
      job.Post(kGo);
    }
    const cotune_status_t status = api.progress(plan, launch.deadline_ns, &error);
    api.plan_destroy(plan);
    if (status != COTUNE_OK) return Describe(status, error);
    return receive == std::vector<float>(kCount, 3) ? "" : "wrong sum";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// A call of one rank, launched and ended in steps of the test.
class OpenCall {
 public:
  OpenCall(const GroupForTest& group, const cotune_problem_t& problem, const char* choice)
      : problem_(problem),
        send_(problem.bytes / sizeof(float), 1),
        receive_(problem.bytes / sizeof(float)) {
    prepared_ = api_.prepare(group.group(), &problem_, choice, 0, &plan_, &error_);
  }
  ~OpenCall() { api_.plan_destroy(plan_); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

  cotune_status_t Launch() {
    const cotune_launch_t launch{.struct_size = sizeof(launch),
                                 .flags = 0,
                                 .send = send_.data(),
                                 .recv = receive_.data(),
                                 .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                 .deadline_ns = MonotonicNs() + kLongNs};
    return prepared_ == COTUNE_OK ? api_.launch(plan_, &launch, &error_) : prepared_;
  }
  cotune_status_t Finish() { return api_.progress(plan_, MonotonicNs() + kLongNs, &error_); }
  bool HasSumOf(int ranks) const {
    return receive_ == std::vector<float>(receive_.size(), static_cast<float>(ranks));
  }
  const cotune_error_t& error() const { return error_; }

 private:
  const cotune_backend_api_t& api_ = *Tested().api;
  const cotune_problem_t problem_;
  std::vector<float> send_;
  std::vector<float> receive_;
  cotune_plan_t* plan_ = nullptr;
  cotune_status_t prepared_ = COTUNE_OK;
  cotune_error_t error_ = EmptyError();
};

// The end of the first call would end the second one, too, for the group.
TEST(FaultsTest, NoCallBeginsWhileOneWithoutElementsIsInFlight) {
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, {10, 11}, MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    cotune_problem_t without_elements = AllReduceProblem(2);
    without_elements.count = 0;
    without_elements.bytes = 0;
    OpenCall empty(group, without_elements, Tested().large);
    OpenCall usual(group, AllReduceProblem(2), Tested().large);
    if (cotune_status_t status = empty.Launch(); status != COTUNE_OK) {
      return Describe(status, empty.error());
    }
    const cotune_status_t second = usual.Launch();
    if (second != COTUNE_INVALID_ARGUMENT) return "two at once: " + Describe(second, usual.error());
    if (cotune_status_t status = empty.Finish(); status != COTUNE_OK) {
      return Describe(status, empty.error());
    }
    cotune_status_t status = usual.Launch();
    if (status == COTUNE_OK) status = usual.Finish();
    if (status != COTUNE_OK) return Describe(status, usual.error());
    return usual.HasSumOf(2) ? "" : "wrong sum";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::backend_test
