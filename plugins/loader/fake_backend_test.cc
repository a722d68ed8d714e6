// The adapter over the fake backend's real table: values, faults, errors.
#include "plugins/fake/fake_backend.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/problem/program_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "plugins/loader/testing/fake_ranks.h"
#include "sync/exchange/local_exchange.h"
#include "sync/socket/socket_exchange.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Problem SumOf100(int world_size) {
  return MakeProblem(Collective::kAllReduce, Reduction::kSum, Dtype::kI32, world_size, 100);
}

// Every collective, type and reduction, in place and not, at a few counts.
void CheckEverything(int world_size, FakeRank& self) {
  for (Collective collective : AllCollectives()) {
    for (Reduction reduction : AllReductions()) {
      for (Dtype dtype : AllDtypes()) {
        for (uint64_t count : {0, 1, 3, 17}) {
          for (bool in_place : {false, true}) {
            ASSERT_EQ(self.RunAndCheck(
                          MakeProblem(collective, reduction, dtype, world_size, count, in_place),
                          "plain"),
                      "");
          }
        }
      }
      if (!Reduces(collective)) break;
    }
    // More than one value of the store.
    for (uint64_t count : {16384, 16385, 40000}) {
      const Problem problem =
          MakeProblem(collective, Reduction::kSum, Dtype::kF32, world_size, count);
      ASSERT_EQ(self.RunAndCheck(problem, "plain"), "");
    }
  }
}

class FakeBackendWorldTest : public ::testing::TestWithParam<int> {};

TEST_P(FakeBackendWorldTest, EveryCollectiveTypeAndReductionIsRight) {
  OnFakeRanks(GetParam(), "choice plain default",
              [](int, FakeRank& self) { CheckEverything(GetParam(), self); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FakeBackendWorldTest, ::testing::Values(1, 2, 3, 5));

TEST(FakeBackendTest, RanksCanBeProcesses) {
  std::string folder = "/tmp/cotune_fake_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  constexpr int kWorldSize = 3;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() > 0) continue;
    const MonotonicClock clock;
    sync::SocketExchangeOptions options;
    options.rank = rank;
    options.world_size = kWorldSize;
    options.job_id = "fake";
    options.socket_path = folder + "/socket";
    options.code_version = "test";
    options.deadline_ns = clock.now_ns() + kPatienceNs;
    std::string mistake;
    {
      const auto exchange = sync::ConnectSocketExchange(options, clock);
      if (!exchange) {
        mistake = exchange.error().ToText();
      } else {
        FakeRank self(**exchange, clock, "choice plain default");
        for (uint64_t count : {0, 5, 20000}) {
          mistake += self.RunAndCheck(MakeProblem(Collective::kAllReduce, Reduction::kAverage,
                                                  Dtype::kBf16, kWorldSize, count),
                                      "plain");
        }
      }
    }
    std::fputs(mistake.c_str(), stderr);
    _exit(mistake.empty() ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  unlink((folder + "/socket").c_str());
  rmdir(folder.c_str());
}

TEST(FakeBackendTest, NothingIsLeftInTheStore) {
  OnFakeRanks(2, "choice plain default", [](int rank, FakeRank& self) {
    ASSERT_EQ(self.RunAndCheck(SumOf100(2), "plain"), "");
    ASSERT_TRUE(self.exchange.Step("all ran", "", 0, self.clock.now_ns() + kPatienceNs));
    if (rank != 0) return;
    for (const char* key : {"group/meet1/0-1", "group/meet1/1-0", "group/1/0-1/0", "group/1/1-0/0",
                            "group/aborted"}) {
      EXPECT_EQ(self.exchange.StoreGet(key, self.clock.now_ns()).error().code, ErrorCode::kDeadline)
          << key;
    }
  });
}

TEST(FakeBackendTest, WrongValuesAndOverrunsHappenOnTheirRankOnly) {
  OnFakeRanks(2, "choice bad wrong_on=1; choice long overruns_on=0", [](int rank, FakeRank& self) {
    const std::string name = ToText(SumOf100(2));
    EXPECT_EQ(self.RunAndCheck(SumOf100(2), "bad"), rank == 1 ? name + ": 1 wrong elements" : "");
    EXPECT_EQ(self.RunAndCheck(SumOf100(2), "long"),
              rank == 0 ? name + ": 0 wrong elements, wrote outside" : "");
  });
}

// Launches once and aborts the group on a failure, as the pipeline does.
Status RunPlan(FakeRank& self, Plan& plan, int64_t timeout_ns) {
  std::vector<int32_t> send(100);
  std::vector<int32_t> recv(100);
  const Status ran =
      plan.Run({send.data(), recv.data(), nullptr, self.clock.now_ns() + timeout_ns}, self.clock);
  if (!ran) self.group->Abort();
  return ran;
}

// 0.125 s after the deadline, as a backend may that asks the other ranks first.
TEST(FakeBackendTest, ARankThatIsNamedAsLateAsTheAbiAllowsIsHandedOn) {
  OnFakeRanks(2, "choice a names_late hangs_on=1", [](int rank, FakeRank& self) {
    const auto plan = self.Prepare(SumOf100(2), "a");
    ASSERT_TRUE(plan.has_value());
    const Status ran = RunPlan(self, **plan, 1'000'000'000);
    ASSERT_FALSE(ran.has_value());
    if (rank != 0) return;
    EXPECT_EQ(ran.error().code, ErrorCode::kRankLost) << ran.error().ToText();
    EXPECT_THAT(ran.error().ranks, ElementsAre(kFirstJobRank + 1));
  });
}

TEST(FakeBackendTest, AnOperationThatNeverEndsIsAbortedAndLeavesItsBuffersInUse) {
  OnFakeRanks(1, "choice a; breach progress never_done", [](int, FakeRank& self) {
    const auto plan = self.Prepare(SumOf100(1), "a");
    ASSERT_TRUE(plan.has_value());
    std::vector<int32_t> send(100);
    std::vector<int32_t> recv(100);
    const Status ran = (*plan)->Run(
        {send.data(), recv.data(), nullptr, self.clock.now_ns() + 100'000'000}, self.clock);
    ASSERT_FALSE(ran.has_value());
    EXPECT_TRUE(IsStillInProgress(ran.error()));
    EXPECT_THAT(ran.error().ToText(), HasSubstr(kBuffersStayInUse));
    EXPECT_EQ(self.group->Health().error().code, ErrorCode::kAborted);
  });
}

TEST(FakeBackendTest, AnOperationThatThrowsMayRunOn) {
  OnFakeRanks(1, "choice a; breach progress throws", [](int, FakeRank& self) {
    const auto plan = self.Prepare(SumOf100(1), "a");
    ASSERT_TRUE(plan.has_value());
    const Status ran = RunPlan(self, **plan, kPatienceNs);
    ASSERT_FALSE(ran.has_value());
    EXPECT_THAT(ran.error().ToText(), HasSubstr("scripted: progress throws"));
    EXPECT_THAT(ran.error().ToText(), HasSubstr(kBuffersStayInUse));
  });
}

TEST(FakeBackendTest, ALaunchFailsAtItsCallAndAbortFreesThePeer) {
  OnFakeRanks(2, "choice bad launch_fails_on=1 launch_fails_at=2", [](int rank, FakeRank& self) {
    const auto plan = self.Prepare(SumOf100(2), "bad");
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(RunPlan(self, **plan, kPatienceNs).has_value());
    EXPECT_TRUE(self.group->Health().has_value());
    const Status second = RunPlan(self, **plan, kPatienceNs);
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, rank == 1 ? ErrorCode::kInternal : ErrorCode::kAborted);
    EXPECT_EQ(second.error().where, "backend fake");
    if (rank == 1) {
      EXPECT_EQ(second.error().what, "scripted: launch fails");
    }
    // The group stays unusable.
    EXPECT_EQ(self.group->Health().error().code, ErrorCode::kAborted);
    EXPECT_EQ(RunPlan(self, **plan, kPatienceNs).error().code, ErrorCode::kAborted);
    EXPECT_EQ(self.Prepare(SumOf100(2), "bad").error().code, ErrorCode::kAborted);
  });
}

TEST(FakeBackendTest, AHangEndsAtTheDeadlineAndNamesTheJobRank) {
  OnFakeRanks(3, "choice bad hangs_on=1", [](int rank, FakeRank& self) {
    const auto plan = self.Prepare(SumOf100(3), "bad");
    ASSERT_TRUE(plan.has_value());
    const Status ran = RunPlan(self, **plan, 200'000'000);
    ASSERT_FALSE(ran.has_value());
    if (rank == 1) {
      EXPECT_EQ(ran.error().code, ErrorCode::kDeadline);
      return;
    }
    // A peer may say first that it gave up.
    if (ran.error().code == ErrorCode::kAborted) return;
    EXPECT_EQ(ran.error().code, ErrorCode::kRankLost);
    EXPECT_THAT(ran.error().ranks, ElementsAre(kFirstJobRank + 1));
    EXPECT_THAT(ran.error().what, HasSubstr("rank 11 had not sent its data at the deadline"));
  });
}

TEST(FakeBackendTest, GroupsPrepareAndListsFailAsScripted) {
  OnFakeRanks(1, "choice a; group_fails_on 0", [](int, FakeRank& self) {
    EXPECT_EQ(self.group, nullptr);
    EXPECT_EQ(self.group_error.what, "scripted: group_create fails");
  });
  OnFakeRanks(2, "choice a default; choice b missing_on=1; choice c prepare_fails_on=0",
              [](int rank, FakeRank& self) {
                const auto prepared = self.Prepare(SumOf100(2), "c");
                EXPECT_EQ(prepared.has_value(), rank == 1);
                if (rank == 0) {
                  EXPECT_EQ(prepared.error().what, "scripted: prepare fails");
                }
                const auto unknown = self.Prepare(SumOf100(2), "d");
                ASSERT_FALSE(unknown.has_value());
                EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
                EXPECT_EQ(unknown.error().what, "there is no choice d");
                const ChoiceList list = self.backend->ListChoices(
                    *Program::SingleCollective(SumOf100(2).cls), SumOf100(2));
                EXPECT_EQ(list.choices.size(), rank == 1 ? 2u : 3u);
              });
}

TEST(FakeBackendTest, PrepareTakesItsDelayAndMeetsTheOthers) {
  OnFakeRanks(2, "choice a prepare_delay_ms=30 prepare_delay_on=1 collective_prepare",
              [](int, FakeRank& self) {
                const int64_t begin_ns = self.clock.now_ns();
                ASSERT_TRUE(self.exchange.Step("begin", "", 0, begin_ns + kPatienceNs));
                ASSERT_TRUE(self.Prepare(SumOf100(2), "a").has_value());
                // Rank 0 has waited for rank 1.
                EXPECT_GE(self.clock.now_ns() - begin_ns, 30'000'000);
              });
}

TEST(FakeBackendTest, ProgressReturnsWhenItsTimeIsUp) {
  OnFakeRanks(1, "choice slow cost_us=50000", [](int, FakeRank& self) {
    const Problem problem = MakeProblem(Collective::kAllReduce, Reduction::kSum, Dtype::kU8, 1, 1);
    const auto plan = self.Prepare(problem, "slow");
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

TEST(FakeBackendTest, ListsAreFilteredWithReasons) {
  OnFakeRanks(1,
              "choice a default bytes_max=100\nchoice b bytes_min=50 model_us=4\n"
              "choice c refuse=not_today\nchoice d only=broadcast",
              [](int, FakeRank& self) {
                const Problem problem =
                    MakeProblem(Collective::kAllReduce, Reduction::kSum, Dtype::kU8, 1, 200);
                const ChoiceList list =
                    self.backend->ListChoices(*Program::SingleCollective(problem.cls), problem);
                ASSERT_EQ(list.choices.size(), 1u);
                EXPECT_EQ(list.choices[0].id.text(), "fake/b");
                EXPECT_TRUE(list.choices[0].is_default);
                EXPECT_TRUE(list.choices[0].is_reproducible);
                EXPECT_EQ(list.choices[0].cost_us, 4);
                ASSERT_EQ(list.refusals.size(), 3u);
                EXPECT_EQ(list.refusals[0].choice, "fake/a");
                EXPECT_EQ(list.refusals[0].reason, "takes at most 100 bytes");
                EXPECT_EQ(list.refusals[1].reason, "not today");
                EXPECT_EQ(list.refusals[2].reason, "not for this collective");
              });
  OnFakeRanks(1, "choice a; refuse_all out of order", [](int, FakeRank& self) {
    const ChoiceList list =
        self.backend->ListChoices(*Program::SingleCollective(SumOf100(1).cls), SumOf100(1));
    EXPECT_TRUE(list.choices.empty());
    ASSERT_EQ(list.refusals.size(), 1u);
    EXPECT_EQ(list.refusals[0].choice, "fake");
    EXPECT_EQ(list.refusals[0].reason, "out of order");
  });
}

// y = relu(x) of 4 columns, as a part.
Result<std::unique_ptr<Plan>> PrepareRelu(FakeRank& self) {
  ProgramParts parts;
  parts.inputs = {{.name = "x", .type = {Dtype::kF32, Rows::kAll, 4}}};
  parts.nodes = {ComputeNode{.op = Op::kRelu, .operands = {{.value = 0}}}};
  parts.outputs = {{.value = 1}};
  const ProgramGraph graph = ProgramGraph::Make(std::move(parts), /*is_part=*/true).value();
  return self.backend->PreparePart({.part = graph,
                                    .rows = 2,
                                    .memory = MemoryKind::kHost,
                                    .world_size = self.exchange.world_size()},
                                   self.clock.now_ns() + kPatienceNs);
}

// Runs the part once over numbers of both signs.
Result<std::vector<float>> RunRelu(FakeRank& self, Plan& part, int64_t timeout_ns = kPatienceNs) {
  const std::vector<float> from = {1, -2, 3, -4, -5, 6, -7, 8};
  std::vector<float> to(8, -1);
  const void* const inputs[] = {from.data()};
  void* const outputs[] = {to.data()};
  LaunchArguments arguments;
  arguments.inputs = inputs;
  arguments.outputs = outputs;
  arguments.deadline_ns = self.clock.now_ns() + timeout_ns;
  COTUNE_RETURN_IF_ERROR(part.Run(arguments, self.clock));
  return to;
}

TEST(FakeBackendTest, PartsRunOnlyWhereTheScriptHasThem) {
  OnFakeRanks(1, "choice a", [](int, FakeRank& self) { EXPECT_FALSE(self.backend->has_parts()); });
  OnFakeRanks(2, "choice a; parts", [](int, FakeRank& self) {
    ASSERT_TRUE(self.backend->has_parts());
    const auto part = PrepareRelu(self);
    ASSERT_TRUE(part.has_value()) << part.error().ToText();
    for (int i = 0; i < 2; ++i) {
      const auto values = RunRelu(self, **part);
      ASSERT_TRUE(values.has_value()) << values.error().ToText();
      EXPECT_THAT(*values, ElementsAre(1, 0, 3, 0, 0, 6, 0, 8));
    }
  });
}

TEST(FakeBackendTest, PartsAreRefusedAndFailToPrepareAsScripted) {
  OnFakeRanks(1, "choice a; parts refuse=no_such_operation", [](int, FakeRank& self) {
    const auto part = PrepareRelu(self);
    ASSERT_FALSE(part.has_value());
    EXPECT_EQ(part.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(part.error().what, "no such operation");
  });
  OnFakeRanks(
      3, "choice a; parts prepare_fails_on=0 prepare_refused_on=1", [](int rank, FakeRank& self) {
        const auto part = PrepareRelu(self);
        ASSERT_EQ(part.has_value(), rank == 2);
        if (rank == 2) return;
        EXPECT_EQ(part.error().code, rank == 0 ? ErrorCode::kInternal : ErrorCode::kUnsupported);
        EXPECT_EQ(part.error().what,
                  rank == 0 ? "scripted: part_prepare fails" : "scripted: part_prepare refuses");
      });
}

TEST(FakeBackendTest, PartsAreWrongAndFailOnTheirRankOnly) {
  OnFakeRanks(2, "choice a; parts wrong_on=1 launch_fails_on=0 launch_fails_at=2",
              [](int rank, FakeRank& self) {
                const auto part = PrepareRelu(self);
                ASSERT_TRUE(part.has_value()) << part.error().ToText();
                const auto first = RunRelu(self, **part);
                ASSERT_TRUE(first.has_value()) << first.error().ToText();
                EXPECT_EQ(first->at(7) == 8, rank == 0);
                EXPECT_EQ(first->at(5), 6) << "only the last element is wrong";
                const auto second = RunRelu(self, **part);
                ASSERT_EQ(second.has_value(), rank == 1);
                if (rank == 1) return;
                EXPECT_EQ(second.error().code, ErrorCode::kInternal);
                EXPECT_EQ(second.error().what, "scripted: the launch of a part fails");
              });
}

TEST(FakeBackendTest, PartsTakeTheirTimeAndKeepTheirDeadline) {
  OnFakeRanks(1, "choice a; parts cost_us=30000", [](int, FakeRank& self) {
    const auto part = PrepareRelu(self);
    ASSERT_TRUE(part.has_value()) << part.error().ToText();
    const int64_t begin_ns = self.clock.now_ns();
    ASSERT_TRUE(RunRelu(self, **part).has_value());
    EXPECT_GE(self.clock.now_ns() - begin_ns, 30'000'000);
    const auto late = RunRelu(self, **part, 1'000'000);
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, ErrorCode::kDeadline);
  });
}

TEST(FakeBackendTest, BreachesOfPartsBecomeErrors) {
  OnFakeRanks(1, "choice a; parts; breach part_prepare throws", [](int, FakeRank& self) {
    const auto part = PrepareRelu(self);
    ASSERT_FALSE(part.has_value());
    EXPECT_THAT(part.error().ToText(), HasSubstr("scripted: part_prepare throws"));
  });
  OnFakeRanks(1, "choice a; parts; breach part_launch throws; breach part_plan_destroy throws",
              [](int, FakeRank& self) {
                const auto part = PrepareRelu(self);
                ASSERT_TRUE(part.has_value()) << part.error().ToText();
                const auto values = RunRelu(self, **part);
                ASSERT_FALSE(values.has_value());
                EXPECT_THAT(values.error().ToText(), HasSubstr("scripted: part_launch throws"));
              });
}

// y = relu(all_reduce(x)) of 4 columns, as a region at 2 rows.
Program ReluRegion(int world_size) {
  return Program::Bind(ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n"
                                           "%y = relu %s\nreturn %y\n")
                           .value(),
                       {MemoryKind::kHost, world_size, world_size})
      .value();
}

ChoiceList ListRegion(FakeRank& self) {
  const Program region = ReluRegion(self.exchange.world_size());
  return self.backend->ListChoices(region, region.ProblemAtRows(2, 0));
}

Result<std::unique_ptr<Plan>> PrepareRegion(FakeRank& self, const std::string& name = "a") {
  const Program region = ReluRegion(self.exchange.world_size());
  return self.group->Prepare(region, region.ProblemAtRows(2, 0),
                             Choice{.id = ChoiceId::FromBackend("fake", name).value()},
                             self.clock.now_ns() + kPatienceNs);
}

// Runs the region once: with two ranks the sums are -1, 2, -3, 4, 5, -6, 7, -8.
Result<std::vector<float>> RunRegion(FakeRank& self, Plan& plan, int64_t timeout_ns = kPatienceNs) {
  const bool is_first = self.exchange.rank() == 0;
  const std::vector<float> from = is_first ? std::vector<float>{1, -2, 3, -4, -5, 6, -7, 8}
                                           : std::vector<float>{-2, 4, -6, 8, 10, -12, 14, -16};
  std::vector<float> to(8, -1);
  const void* const inputs[] = {from.data()};
  void* const outputs[] = {to.data()};
  LaunchArguments arguments;
  arguments.inputs = inputs;
  arguments.outputs = outputs;
  arguments.deadline_ns = self.clock.now_ns() + timeout_ns;
  if (const Status ran = plan.Run(arguments, self.clock); !ran) {
    self.group->Abort();
    return Propagate(ran);
  }
  return to;
}

TEST(FakeBackendTest, RegionsAreListedAndRunAsTheScriptSays) {
  OnFakeRanks(1, "choice a", [](int, FakeRank& self) {
    EXPECT_THAT(ListRegion(self).refusals.at(0).reason, HasSubstr("fusion extension not offered"));
  });
  OnFakeRanks(2,
              "choice a fuses=1 model_us=7 numerics=own; choice b; "
              "choice c fuses=2 region_refused=not_today",
              [](int, FakeRank& self) {
                const ChoiceList list = ListRegion(self);
                ASSERT_EQ(list.choices.size(), 1u);
                EXPECT_EQ(list.choices[0].id.text(), "fake/a");
                EXPECT_EQ(list.choices[0].cost_us, 7);
                EXPECT_EQ(list.choices[0].numerics, "own");
                ASSERT_EQ(list.refusals.size(), 2u);
                EXPECT_EQ(list.refusals[0].reason, "runs collectives alone");
                EXPECT_EQ(list.refusals[1].reason, "not today");
                EXPECT_FALSE(self.backend->has_parts());
                const auto plan = PrepareRegion(self);
                ASSERT_TRUE(plan.has_value()) << plan.error().ToText();
                for (int i = 0; i < 2; ++i) {
                  const auto values = RunRegion(self, **plan);
                  ASSERT_TRUE(values.has_value()) << values.error().ToText();
                  EXPECT_THAT(*values, ElementsAre(0, 2, 0, 4, 5, 0, 7, 0));
                }
                EXPECT_EQ(PrepareRegion(self, "c").error().what, "not today");
              });
  OnFakeRanks(1, "choice a fuses=1; refuse_regions no_such_unit", [](int, FakeRank& self) {
    const ChoiceList list = ListRegion(self);
    EXPECT_TRUE(list.choices.empty());
    EXPECT_EQ(list.refusals.at(0).choice, "fake");
    EXPECT_EQ(list.refusals.at(0).reason, "no_such_unit");
  });
}

// The output overwrites what the operand of the collective is computed from.
TEST(FakeBackendTest, ARegionOverItsOperandIsRight) {
  OnFakeRanks(2, "choice a fuses=2", [](int rank, FakeRank& self) {
    const Program region =
        Program::Bind(ProgramGraph::Parse("%x = input f32 [R, 4]\n%n = neg %x\n"
                                          "%s = all_reduce sum %n\n%y = add %s, %x\n"
                                          "return %y into %x\n")
                          .value(),
                      {MemoryKind::kHost, 2, 2})
            .value();
    const Problem problem = region.ProblemAtRows(1, 0);
    const ChoiceList list = self.backend->ListChoices(region, problem);
    ASSERT_EQ(list.choices.size(), 1u);
    const auto plan =
        self.group->Prepare(region, problem, list.choices[0], self.clock.now_ns() + kPatienceNs);
    ASSERT_TRUE(plan.has_value()) << plan.error().ToText();
    float x[4] = {1, -2, 3, -4};
    if (rank == 1) {
      for (float& each : x) each *= 10;
    }
    const void* const inputs[] = {x};
    void* const outputs[] = {x};
    LaunchArguments arguments;
    arguments.inputs = inputs;
    arguments.outputs = outputs;
    arguments.deadline_ns = self.clock.now_ns() + kPatienceNs;
    const Status ran = (*plan)->Run(arguments, self.clock);
    ASSERT_TRUE(ran.has_value()) << ran.error().ToText();
    // The other rank's operand, negated, is left.
    const float other = rank == 0 ? -10 : -1;
    EXPECT_THAT(x, ElementsAre(other, -2 * other, 3 * other, -4 * other));
  });
}

TEST(FakeBackendTest, RegionsMisbehaveOnTheirRankOnly) {
  OnFakeRanks(2,
              "choice a fuses=1 wrong_epilogue_on=1; choice b fuses=1 bits_differ_on=0; "
              "choice c fuses=1 region_compile_fails",
              [](int rank, FakeRank& self) {
                const auto wrong = RunRegion(self, *PrepareRegion(self, "a").value()).value();
                EXPECT_EQ(wrong[7] == 0, rank == 0);
                EXPECT_EQ(wrong[6], 7);
                const auto off = RunRegion(self, *PrepareRegion(self, "b").value()).value();
                EXPECT_EQ(off[1] == 2, rank == 1);
                EXPECT_FLOAT_EQ(off[1], 2);
                EXPECT_EQ(off[3], 4);
                const auto failed = PrepareRegion(self, "c");
                ASSERT_FALSE(failed.has_value());
                EXPECT_EQ(failed.error().what, "scripted: the region does not compile");
              });
}

TEST(FakeBackendTest, ARegionTakesItsTimeAndAHangNamesTheRank) {
  OnFakeRanks(1, "choice a fuses=1 cost_us=900000 fuse_cost_us=30000", [](int, FakeRank& self) {
    const auto plan = PrepareRegion(self).value();
    const int64_t begin_ns = self.clock.now_ns();
    ASSERT_TRUE(RunRegion(self, *plan).has_value());
    EXPECT_GE(self.clock.now_ns() - begin_ns, 30'000'000);
  });
  OnFakeRanks(2, "choice a fuses=1 region_hangs_on=1", [](int rank, FakeRank& self) {
    const auto plan = PrepareRegion(self).value();
    const auto values = RunRegion(self, *plan, 200'000'000);
    ASSERT_FALSE(values.has_value());
    if (rank == 1) {
      EXPECT_EQ(values.error().code, ErrorCode::kDeadline);
      return;
    }
    EXPECT_EQ(values.error().code, ErrorCode::kRankLost) << values.error().ToText();
    EXPECT_THAT(values.error().ranks, ElementsAre(kFirstJobRank + 1));
  });
}

TEST(FakeBackendTest, BreachesOfRegionsBecomeErrors) {
  OnFakeRanks(1, "choice a fuses=1; breach region_list_choices throws at=2",
              [](int, FakeRank& self) {
                EXPECT_EQ(ListRegion(self).choices.size(), 1u);
                EXPECT_THAT(ListRegion(self).refusals.at(0).reason,
                            HasSubstr("scripted: region_list_choices throws"));
              });
  OnFakeRanks(1, "choice a fuses=1; breach region_prepare throws_int", [](int, FakeRank& self) {
    const auto plan = PrepareRegion(self);
    ASSERT_FALSE(plan.has_value());
    EXPECT_THAT(plan.error().ToText(), HasSubstr("it is no std::exception"));
  });
  OnFakeRanks(1,
              "choice a fuses=1; choice b fuses=1; breach region_launch throws choice=a; "
              "breach region_plan_destroy throws",
              [](int, FakeRank& self) {
                EXPECT_TRUE(RunRegion(self, *PrepareRegion(self, "b").value()).has_value());
                const auto values = RunRegion(self, *PrepareRegion(self, "a").value());
                ASSERT_FALSE(values.has_value());
                EXPECT_THAT(values.error().ToText(), HasSubstr("scripted: region_launch throws"));
              });
  OnFakeRanks(1, "choice a fuses=1; breach region_progress never_done", [](int, FakeRank& self) {
    const auto values = RunRegion(self, *PrepareRegion(self).value(), 100'000'000);
    ASSERT_FALSE(values.has_value());
    EXPECT_TRUE(IsStillInProgress(values.error())) << values.error().ToText();
    EXPECT_THAT(values.error().ToText(), HasSubstr(kBuffersStayInUse));
  });
}

Error AdoptError(const std::string& script) {
  const MonotonicClock clock;
  const auto exchanges = sync::MakeLocalExchanges(1, clock);
  const HostServices services(*exchanges[0], clock, {{"fake.script", script}}, nullptr);
  const auto backend = AdoptBackend(fake::BackendApi(), services.table(), -1, "test");
  return backend ? Error{} : backend.error();
}

TEST(FakeBackendTest, CreateSaysWhyItFails) {
  const Error bad_script = AdoptError("choice a cost_us=cheap");
  EXPECT_EQ(bad_script.code, ErrorCode::kUsage);
  EXPECT_EQ(bad_script.what, "plugin refused at step 'create'");
  EXPECT_EQ(bad_script.cause, "setting fake.script, line 1: cannot read 'cost_us=cheap'");
  const Error fails = AdoptError("choice a; create_fails out of luck");
  EXPECT_EQ(fails.code, ErrorCode::kPluginRefused);
  EXPECT_EQ(fails.cause, "out of luck");
  const Error unsupported = AdoptError("choice a; create_unsupported no such device");
  EXPECT_EQ(unsupported.code, ErrorCode::kUnsupported);
  EXPECT_EQ(unsupported.what, "backend fake cannot be used on this machine");
  EXPECT_EQ(unsupported.cause, "no such device");
  EXPECT_EQ(
      unsupported.next_step,
      "to use this backend, provide what the cause names, or run cotune on a machine that has "
      "it");
}

}  // namespace
}  // namespace cotune
