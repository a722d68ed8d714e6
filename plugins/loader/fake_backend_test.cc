// The adapter over the fake backend's real table, with ranks as threads: values, faults, errors.
#include "plugins/fake/fake_backend.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/device.h"
#include "core/operand_buffers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "sync/local_exchange.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPatienceNs = 60'000'000'000;
constexpr uint32_t kSalt = 3;

// One rank with its backend and group.
struct RankForTest {
  RankForTest(RankExchange& exchange, const Clock& rank_clock, const std::string& script)
      : clock(rank_clock), services(exchange, rank_clock, {{"fake.script", script}}, nullptr) {
    backend = std::move(*AdoptBackend(fake::BackendApi(), services.table(), -1, "test"));
    GroupParameters parameters;
    parameters.name = "group";
    parameters.rank = exchange.rank();
    // Ranks of the job differ from those of the group, so that errors show which they name.
    for (int rank = 0; rank < exchange.world_size(); ++rank)
      parameters.job_ranks.push_back(10 + rank);
    parameters.deadline_ns = clock.now_ns() + kPatienceNs;
    Result<std::unique_ptr<BackendGroup>> made = backend->CreateGroup(parameters);
    if (made) group = std::move(*made);
  }

  Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, const std::string& name) {
    const Program program = *Program::SingleCollective(problem.cls);
    const Choice choice{*ChoiceId::FromBackend("fake", name), false, false, false, false, -1, 0, 0};
    return group->Prepare(program, problem, choice, clock.now_ns() + kPatienceNs);
  }

  const Clock& clock;
  HostServices services;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<BackendGroup> group;
};

void OnRanks(int world_size, const std::string& script,
             const std::function<void(int, RankForTest&)>& body) {
  const MonotonicClock clock;
  auto exchanges = sync::MakeLocalExchanges(world_size, clock);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      RankForTest self(*exchanges[rank], clock, script);
      ASSERT_NE(self.group, nullptr);
      body(rank, self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Problem Make(Collective collective, Reduction reduction, Dtype dtype, int world_size,
             uint64_t count) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
  problem.cls.dtype = dtype;
  problem.cls.world_size = world_size;
  problem.cls.ranks_per_node = world_size;
  problem.cls.root = collective == Collective::kBroadcast ? world_size - 1 : 0;
  problem.count = count;
  return problem;
}

TEST(FakeBackendTest, EveryCollectiveTypeAndReductionIsRight) {
  OnRanks(3, "choice plain default", [](int rank, RankForTest& self) {
    const std::unique_ptr<Device> device = MakeHostDevice(self.clock);
    for (Collective collective : AllCollectives()) {
      for (Reduction reduction : AllReductions()) {
        for (Dtype dtype : AllDtypes()) {
          for (uint64_t count : {0, 1, 20000}) {
            if (count == 20000 && dtype != Dtype::kF32) continue;
            const Problem problem = Make(collective, reduction, dtype, 3, count);
            auto buffers = *OperandBuffers::Allocate(*device, problem, rank);
            ASSERT_TRUE(buffers->Fill(kSalt).has_value());
            auto plan = self.Prepare(problem, "plain");
            ASSERT_TRUE(plan.has_value()) << plan.error().ToText();
            LaunchArguments arguments{buffers->send(), buffers->recv(), nullptr,
                                      self.clock.now_ns() + kPatienceNs};
            const Status ran = (*plan)->Run(arguments);
            ASSERT_TRUE(ran.has_value()) << ran.error().ToText();
            const OperandCheck check = *buffers->Check(kSalt);
            ASSERT_EQ(check.wrong_elements, 0u) << ToText(problem);
            ASSERT_FALSE(check.wrote_outside || check.changed_send) << ToText(problem);
          }
        }
        if (!Reduces(collective)) break;
      }
    }
  });
}

// Runs one call of `name` on two ranks; what each rank saw.
std::map<int, Status> RunOnce(const std::string& script, const std::string& name,
                              int64_t timeout_ns, std::map<int, OperandCheck>* checks = nullptr) {
  std::map<int, Status> results;
  std::mutex mutex;
  OnRanks(2, script, [&](int rank, RankForTest& self) {
    const std::unique_ptr<Device> device = MakeHostDevice(self.clock);
    const Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kI32, 2, 100);
    auto buffers = *OperandBuffers::Allocate(*device, problem, rank);
    ASSERT_TRUE(buffers->Fill(kSalt).has_value());
    auto plan = self.Prepare(problem, name);
    Status ran = plan ? Status{} : Status(tl::make_unexpected(plan.error()));
    if (plan) {
      LaunchArguments arguments{buffers->send(), buffers->recv(), nullptr,
                                self.clock.now_ns() + timeout_ns};
      ran = (*plan)->Run(arguments);
    }
    if (!ran) self.group->Abort();
    const std::lock_guard lock(mutex);
    results[rank] = ran;
    if (checks != nullptr) (*checks)[rank] = *buffers->Check(kSalt);
  });
  return results;
}

TEST(FakeBackendTest, ScriptedFaultsHappenOnTheirRankOnly) {
  std::map<int, OperandCheck> checks;
  auto results = RunOnce("choice bad wrong_on=1", "bad", kPatienceNs, &checks);
  EXPECT_TRUE(results[0].has_value() && results[1].has_value());
  EXPECT_EQ(checks[0].wrong_elements, 0u);
  EXPECT_EQ(checks[1].wrong_elements, 1u);
  RunOnce("choice bad overruns_on=0", "bad", kPatienceNs, &checks);
  EXPECT_TRUE(checks[0].wrote_outside);
  EXPECT_FALSE(checks[1].wrote_outside);
}

TEST(FakeBackendTest, AFailedLaunchFreesThePeer) {
  auto results = RunOnce("choice bad launch_fails_on=1", "bad", kPatienceNs);
  ASSERT_FALSE(results[0].has_value());
  EXPECT_EQ(results[0].error().code, ErrorCode::kAborted);
  ASSERT_FALSE(results[1].has_value());
  EXPECT_EQ(results[1].error().code, ErrorCode::kInternal);
  EXPECT_EQ(results[1].error().what, "scripted: launch fails");
  EXPECT_EQ(results[1].error().where, "backend fake");
}

TEST(FakeBackendTest, AHangEndsAtTheDeadlineAndNamesTheJobRank) {
  auto results = RunOnce("choice bad hangs_on=1", "bad", 100'000'000);
  ASSERT_FALSE(results[0].has_value());
  EXPECT_EQ(results[0].error().code, ErrorCode::kRankLost);
  EXPECT_EQ(results[0].error().ranks, std::vector<int>{11});
  EXPECT_FALSE(results[1].has_value());
}

TEST(FakeBackendTest, PrepareFailuresAreValues) {
  auto results = RunOnce("choice bad prepare_fails_on=0", "bad", 100'000'000);
  EXPECT_EQ(results[0].error().what, "scripted: prepare fails");
  results = RunOnce("choice a", "b", kPatienceNs);
  EXPECT_EQ(results[0].error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(results[1].error().what, "there is no choice b");
}

TEST(FakeBackendTest, ProgressReturnsWhenItsTimeIsUp) {
  OnRanks(1, "choice slow cost_us=50000", [](int, RankForTest& self) {
    const Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kU8, 1, 1);
    auto plan = self.Prepare(problem, "slow");
    ASSERT_TRUE(plan.has_value());
    const char send = 7;
    char recv = 0;
    const int64_t begin_ns = self.clock.now_ns();
    ASSERT_TRUE((*plan)->Launch({&send, &recv, nullptr, begin_ns + kPatienceNs}).has_value());
    EXPECT_FALSE(*(*plan)->Progress(0));
    EXPECT_FALSE(*(*plan)->Progress(begin_ns + 1'000'000));
    EXPECT_EQ(recv, 0);
    EXPECT_TRUE(*(*plan)->Progress(begin_ns + kPatienceNs));
    EXPECT_GE(self.clock.now_ns() - begin_ns, 50'000'000);
    EXPECT_EQ(recv, 7);
  });
}

TEST(FakeBackendTest, ListsAreFilteredBySizeWithReasons) {
  OnRanks(
      1,
      "choice a default bytes_max=100\nchoice b bytes_min=50 model_us=4\nchoice c refuse=not_today",
      [](int, RankForTest& self) {
        const Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kU8, 1, 200);
        const ChoiceList list =
            self.backend->ListChoices(*Program::SingleCollective(problem.cls), problem);
        ASSERT_EQ(list.choices.size(), 1u);
        EXPECT_EQ(list.choices[0].id.text(), "fake/b");
        EXPECT_TRUE(list.choices[0].is_default);
        EXPECT_EQ(list.choices[0].cost_us, 4);
        ASSERT_EQ(list.refusals.size(), 2u);
        EXPECT_EQ(list.refusals[0].reason, "takes at most 100 bytes");
        EXPECT_EQ(list.refusals[1].reason, "not today");
      });
}

TEST(FakeBackendTest, ABadScriptRefusesThePluginWithItsLine) {
  const MonotonicClock clock;
  auto exchanges = sync::MakeLocalExchanges(1, clock);
  HostServices services(*exchanges[0], clock, {{"fake.script", "choice a cost_us=cheap"}}, nullptr);
  const auto backend = AdoptBackend(fake::BackendApi(), services.table(), -1, "test");
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code, ErrorCode::kPluginRefused);
  EXPECT_THAT(backend.error().ToText(),
              HasSubstr("fake.script, line 1: cannot read 'cost_us=cheap'"));
}

}  // namespace
}  // namespace cotune
