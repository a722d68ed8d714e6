// Plans of a group share their scratch memory: making one takes no pages of the machine, many of
// them take no more than one of each choice, and UCX keeps what it may still write to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"
#include "plugins/ucx/choice_list.h"
#include "plugins/ucx/operation.h"
#include "plugins/ucx/testing/inner_rank.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 2;
constexpr uint64_t kCount = 512 << 10;
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr int kPlansOfChoice = 16;
constexpr int64_t kLongNs = 60 * kSecondNs;
constexpr cotune_dtype_t kFloat = {COTUNE_DTYPE_FLOAT, 32, 1};

enum Event { kDone };

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class OnePlan {
 public:
  OnePlan(const GroupForTest& group, const cotune_problem_t& problem, const char* choice) {
    status_ = Tested().api->prepare(group.group(), &problem, choice, MonotonicNs() + kLongNs,
                                    &plan_, &error_);
  }
  ~OnePlan() { Tested().api->plan_destroy(plan_); }
  OnePlan(const OnePlan&) = delete;
  OnePlan& operator=(const OnePlan&) = delete;

  // Empty, or why it failed.
  std::string Run(const void* send, void* receive) {
    const int64_t deadline_ns = MonotonicNs() + kLongNs;
    const cotune_launch_t launch{.struct_size = sizeof(launch),
                                 .flags = 0,
                                 .send = send,
                                 .recv = receive,
                                 .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                 .deadline_ns = deadline_ns};
    if (status_ == COTUNE_OK) status_ = Tested().api->launch(plan_, &launch, &error_);
    if (status_ == COTUNE_OK) status_ = COTUNE_IN_PROGRESS;
    while (status_ == COTUNE_IN_PROGRESS) {
      status_ = Tested().api->progress(plan_, deadline_ns, &error_);
    }
    return status_ == COTUNE_OK ? "" : error_.message;
  }

 private:
  cotune_plan_t* plan_ = nullptr;
  cotune_status_t status_ = COTUNE_OK;
  cotune_error_t error_ = EmptyError();
};

// The plans of one rank. plans[n] are the n-th ones of all choices.
class ManyPlans {
 public:
  ManyPlans(const GroupForTest& group, int rank)
      : send_(kCount, static_cast<float>(rank + 1)), receive_(kCount, 0) {
    const cotune_problem_t problem =
        AbiProblem(COTUNE_ALL_REDUCE, kFloat, COTUNE_SUM, kCount, kRanks);
    const auto choices = RunnableChoices(group.backend(), problem);
    plans_.resize(kPlansOfChoice);
    for (auto& plans : plans_) {
      for (const cotune_choice_t& choice : choices) {
        plans.push_back(std::make_unique<OnePlan>(group, problem, choice.name));
      }
    }
  }

  std::string Run(int first, int end) {
    for (int n = first; n < end; ++n) {
      for (const auto& plan : plans_[static_cast<size_t>(n)]) {
        std::fill(receive_.begin(), receive_.end(), 0.0f);
        std::string wrong = plan->Run(send_.data(), receive_.data());
        if (!wrong.empty()) return wrong;
        const auto right = std::count(receive_.begin(), receive_.end(), 3.0f);
        if (static_cast<uint64_t>(right) != kCount) return "wrong values";
      }
    }
    return "";
  }

 private:
  std::vector<float> send_;
  std::vector<float> receive_;
  std::vector<std::vector<std::unique_ptr<OnePlan>>> plans_;
};

std::string Grown(int64_t before, int64_t bytes_max, const char* how) {
  const int64_t grown = ResidentBytes() - before;
  if (grown <= bytes_max) return "";
  return std::to_string(grown) + " bytes more " + how;
}

std::string RunRank(const GroupForTest& group, int rank) {
  constexpr int64_t kOwn = 2 * kBytes;  // the operands of the calls
  constexpr int64_t kRoom = 2 * kBytes;
  const int64_t at_first = ResidentBytes();
  ManyPlans plans(group, rank);
  std::string wrong = Grown(at_first, kOwn + kRoom, "after plans were made");
  if (wrong.empty()) wrong = plans.Run(0, 1);
  if (!wrong.empty()) return wrong;
  const int64_t after_one_of_each = ResidentBytes();
  wrong = plans.Run(1, kPlansOfChoice);
  if (!wrong.empty()) return wrong;
  return Grown(after_one_of_each, kRoom, "after the other plans ran");
}

TEST(PlanMemoryTest, ManyPlansTakeTheScratchOfOne) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer takes memory of its own for each plan";
#endif
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    const GroupForTest group(job.host(), "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    std::string wrong = RunRank(group, rank);
    job.Post(kDone);
    job.Await(kDone, kRanks);
    return wrong;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// An all_reduce whose first message comes into its scratch. The other rank does not make the call.
std::string EndWithOpenMessage(Group& group) {
  const Problem problem{.collective = Collective::kAllReduce,
                        .reduction = Reduction::kSum,
                        .type = sdk::ElementType::kF32,
                        .count = kCount,
                        .world_size = kRanks};
  const std::vector<float> send(kCount, 1);
  std::vector<float> receive(kCount, 0);
  Schedule schedule = ScheduleOf(problem, "ring", group.rank()).value();
  const uint64_t scratch_bytes = schedule.ScratchBytes();
  auto operation = std::make_unique<Operation>(group, std::move(schedule), "ring");
  const std::weak_ptr<std::byte> scratch = group.scratch().Take(scratch_bytes);
  group.BeginCall(operation->call(), operation.get());
  operation->Start(send.data(), receive.data(), MonotonicNs() + kLongNs);
  if (operation->Run(0) != Advance::kInProgress) return "the call has ended";
  if (operation->Awaited() == 0) return "no message is open";
  group.Abort();
  group.EndCall();
  operation.reset();
  return scratch.expired() ? "UCX may write to memory that is freed" : "";
}

TEST(PlanMemoryTest, ScratchOfAnOpenMessageStaysWithTheWorker) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int number) -> std::string {
    InnerRank rank(job.host(), number, kRanks);
    if (!rank.wrong().empty()) return rank.wrong();
    std::string wrong = number == 0 ? EndWithOpenMessage(rank.group()) : "";
    job.Post(kDone);
    job.Await(kDone, kRanks);
    return wrong;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

}  // namespace
}  // namespace cotune::ucx
