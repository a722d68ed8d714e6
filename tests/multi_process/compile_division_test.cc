// The kernels of a tune are compiled once a machine, by all of its ranks at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/choice/precompile.h"
#include "core/testing/empty_plan.h"
#include "fmt/format.h"
#include "plugins/cuda/compile/kernel_cache.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::SizeIs;

constexpr int kRanks = 4;
constexpr int kKernels = 40;
constexpr int64_t kPatienceNs = 60 * kSecondNs;

int64_t NowNs(void* /*context*/) {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const cotune_host_t& Host() {
  static const cotune_host_t* const host = [] {
    auto* made = new cotune_host_t{};
    made->struct_size = sizeof(*made);
    made->now_ns = NowNs;
    return made;
  }();
  return *host;
}

// A plan needs the kernel of its choice's name. Its compiler says what it begins with and goes on
// when the test lets it.
class CompilingGroup final : public BackendGroup {
 public:
  CompilingGroup(const std::string& folder, TestLink& link) : cache_(folder, Host()), link_(link) {}
  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice& choice,
                                        int64_t) override {
    const std::string kernel(choice.id.algorithm());
    // Half of it is for a rank that compiles the same.
    const int64_t deadline_ns = NowNs(nullptr) + 2 * kPatienceNs;
    const auto code = cache_.Get(kernel, deadline_ns, [&]() -> sdk::Result<std::string> {
      link_.Report(fmt::format("compiling {} {}", ++compiled_, kernel));
      link_.AwaitWord();
      link_.Report("compiled " + kernel);
      return "code of " + kernel;
    });
    if (!code || *code != "code of " + kernel) return Fail(ErrorCode::kInternal, "other code");
    return std::make_unique<EmptyPlan>();
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {}

 private:
  const cuda::KernelCache cache_;
  TestLink& link_;
  int compiled_ = 0;
};

// One rank with one thread makes all choices ready; its exit code is how many it could not.
int MakeAllReady(int rank, const std::string& folder, TestLink& link) {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  const Program program = Program::SingleCollective(cls).value();
  BackendMember member;
  member.group = std::make_unique<CompilingGroup>(folder, link);
  std::vector<std::unique_ptr<ChoiceCaller>> callers;
  std::vector<ChoiceCaller*> pointers;
  for (int i = 0; i < kKernels; ++i) {
    Choice choice{.id = ChoiceId::FromBackend("test", fmt::format("kernel_{}", i)).value()};
    callers.push_back(std::make_unique<ChoiceCaller>(program, Problem{cls, 1, 0}, std::move(choice),
                                                     std::vector{&member}));
    pointers.push_back(callers.back().get());
  }
  PrecompileAll(pointers, 1, 0, {rank, kRanks});
  int failed = 0;
  for (ChoiceCaller* caller : pointers) failed += caller->Precompile(0) ? 0 : 1;
  return failed;
}

void StartRanks(RankProcesses& ranks, const std::string& folder) {
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([rank, folder](TestLink& link) { return MakeAllReady(rank, folder, link); });
  }
}

// Kernels that each rank has compiled to the end.
std::vector<std::vector<std::string>> Compiled(const RankProcesses& ranks) {
  std::vector<std::vector<std::string>> compiled;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    compiled.push_back(ranks.LinesOf(rank, "compiled "));
  }
  return compiled;
}

TEST(CompileDivision, EachKernelOnceAndEveryRankItsShareAtTheSameTime) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartRanks(ranks, folder.path() + "/kernels");
  // Nobody goes on before all four are inside a compilation, again and again.
  for (int turn = 1; turn <= kKernels / kRanks; ++turn) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(ranks.WaitForLine(rank, fmt::format("compiling {} ", turn), kPatienceNs))
          << ranks.Transcript();
    }
    for (size_t rank = 0; rank < kRanks; ++rank) ranks.Say(rank);
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  std::set<std::string> kernels;
  for (const std::vector<std::string>& compiled : Compiled(ranks)) {
    EXPECT_THAT(compiled, SizeIs(kKernels / kRanks)) << ranks.Transcript();
    kernels.insert(compiled.begin(), compiled.end());
  }
  EXPECT_THAT(kernels, SizeIs(kKernels));
  for (size_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks.ExitOf(rank), 0);
}

TEST(CompileDivision, WhatALostRankWasCompilingAndHadLeftIsDoneByTheOthers) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartRanks(ranks, folder.path() + "/kernels");
  constexpr size_t kVictim = 1;
  for (int turn = 1; turn <= 3; ++turn) {
    ASSERT_TRUE(ranks.WaitForLine(kVictim, fmt::format("compiling {} ", turn), kPatienceNs))
        << ranks.Transcript();
    if (turn < 3) ranks.Say(kVictim);
  }
  // The others come to all that is left, and wait for what the victim has begun.
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (int i = 0; rank != kVictim && i < kKernels; ++i) ranks.Say(rank);
  }
  ranks.Signal(kVictim, SIGKILL);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  std::multiset<std::string> kernels;
  for (const std::vector<std::string>& compiled : Compiled(ranks)) {
    kernels.insert(compiled.begin(), compiled.end());
  }
  EXPECT_THAT(kernels, SizeIs(kKernels)) << ranks.Transcript();
  EXPECT_THAT(std::set<std::string>(kernels.begin(), kernels.end()), SizeIs(kKernels));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), rank == kVictim ? -SIGKILL : 0);
  }
}

}  // namespace
}  // namespace cotune
