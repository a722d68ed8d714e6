#include "integration/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "integration/testing/allocation_count.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(DispatcherTest, RegisteredBuffersHaveRowsOfTheirOwn) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy");
  const Call call = SumOf(16);
  ProblemClass symmetric = Sum();
  symmetric.buffer_class = BufferClass::kSymmetric;
  const auto everywhere = [](const std::string& id) {
    return std::vector<SizeRange>{{0, UINT64_MAX, Id(id)}};
  };
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{DispatchKey::Of(Sum()), everywhere("fake/plain_winner")},
       DispatchRow{DispatchKey::Of(symmetric), everywhere("fake/zero_copy")}}));
  EXPECT_EQ(Runs(call), "fake/plain_winner");
  BackendGroups& groups = job_->groups();
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/plain_winner") << "only one of two buffers is registered";
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 60, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/plain_winner") << "the last element is not registered";
  groups.UnregisterMemory(send_.data());
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/zero_copy");
  ASSERT_TRUE(dispatcher_->Run(call));
  for (size_t i = 0; i < recv_.size(); ++i) EXPECT_EQ(recv_[i], 3.0F) << i;
  groups.UnregisterMemory(recv_.data());
  EXPECT_EQ(Runs(call), "fake/plain_winner");
  // For a broadcast only receive buffers count: all ranks but one send nothing.
  Call broadcast = call;
  broadcast.collective = Collective::kBroadcast;
  broadcast.reduction = Reduction::kNone;
  ProblemClass received = job_->Class(Collective::kBroadcast, Dtype::kF32, Reduction::kNone);
  received.buffer_class = BufferClass::kSymmetric;
  dispatcher_->SetTable(Table(received, everywhere("fake/zero_copy")));
  EXPECT_EQ(Runs(broadcast), "fake/usual");
  groups.UnregisterMemory(send_.data());
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(broadcast), "fake/zero_copy");
}

TEST_F(DispatcherTest, RegisteredOperandsOfAProgramHaveRowsOfTheirOwn) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy\nparts");
  const ProgramGraph graph =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n")
          .value();
  const auto key = [&](BufferClass buffers) {
    return DispatchKey::Of(
        Program::Bind(graph, {MemoryKind::kHost, 1, 1, buffers}).value().anchor());
  };
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{key(BufferClass::kPlain), {{0, UINT64_MAX, Id("fake/plain_winner")}}},
       DispatchRow{key(BufferClass::kSymmetric), {{0, UINT64_MAX, Id("fake/zero_copy")}}}}));
  SumOf(16);
  const void* const inputs[] = {send_.data()};
  void* const outputs[] = {recv_.data()};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  const auto runs = [&] {
    recv_.assign(16, 0);
    EXPECT_TRUE(dispatcher_->Run(call));
    for (size_t i = 0; i < recv_.size(); ++i) EXPECT_EQ(recv_[i], -3.0F) << i;
    return dispatcher_->Explain(call).value().choice.text();
  };
  EXPECT_EQ(runs(), "fake/plain_winner");
  BackendGroups& groups = job_->groups();
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(runs(), "fake/plain_winner") << "the input is not registered";
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 64, INT64_MAX));
  EXPECT_EQ(runs(), "fake/zero_copy");
  EXPECT_TRUE(dispatcher_->Prepare(call));
  groups.UnregisterMemory(recv_.data());
  EXPECT_EQ(runs(), "fake/plain_winner");
  groups.UnregisterMemory(send_.data());
  EXPECT_EQ(runs(), "fake/plain_winner");
}

TEST_F(DispatcherTest, RegisteredBuffersRunAsPlainOnesBelowTheirSmallestMeasuredSize) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy");
  const Call large = SumOf(16);
  Call small = large;
  small.count = 15;
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  ProblemClass symmetric = Sum();
  symmetric.buffer_class = BufferClass::kSymmetric;
  const DispatchRow measured{
      DispatchKey::Of(symmetric), {{0, UINT64_MAX, Id("fake/zero_copy")}}, 64};
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{DispatchKey::Of(Sum()), {{0, UINT64_MAX, Id("fake/plain_winner")}}}, measured}));
  EXPECT_EQ(Runs(small), "fake/plain_winner");
  ASSERT_TRUE(dispatcher_->Run(small));
  EXPECT_EQ(Runs(large), "fake/zero_copy");
  dispatcher_->SetTable(*DispatchTable::Build({measured}));
  EXPECT_EQ(Runs(small), "fake/zero_copy") << "nothing nearer was measured";
}

TEST_F(DispatcherTest, RegisteredBuffersRunAsPlainOnesWhereNothingElseIsTuned) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner");
  const Call call = SumOf(16);
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/usual");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/plain_winner")}}));
  EXPECT_EQ(Runs(call), "fake/plain_winner");
}

TEST_F(DispatcherTest, WithoutATableTheDefaultChoiceRuns) {
  JoinFake("choice other\nchoice usual default");
  const Call call = SumOf(16);
  const Status run = dispatcher_->Run(call);
  ASSERT_TRUE(run) << run.error().ToText();
  EXPECT_EQ(recv_, send_);
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "fake/usual");
  EXPECT_FALSE(explanation->from_table);
}

TEST_F(DispatcherTest, TheTableDecidesBySize) {
  JoinFake("choice usual default\nchoice small\nchoice large");
  dispatcher_->SetTable(
      Table(Sum(), {{0, 100, Id("fake/small")}, {100, UINT64_MAX, Id("fake/large")}}));
  EXPECT_EQ(Runs(SumOf(24)), "fake/small");
  EXPECT_EQ(Runs(SumOf(25)), "fake/large");
  const Result<CallExplanation> explanation = dispatcher_->Explain(SumOf(1000));
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->from_table);
  EXPECT_EQ(explanation->first_bytes, 100u);
  EXPECT_EQ(explanation->end_bytes, UINT64_MAX);
  Call other = SumOf(24);
  other.reduction = Reduction::kMax;
  EXPECT_EQ(Runs(other), "fake/usual") << "the table says nothing of max";
}

TEST_F(DispatcherTest, ANewTableCountsFromTheNextCallOn) {
  JoinFake("choice usual default\nchoice one\nchoice two");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/one")}}));
  EXPECT_EQ(Runs(SumOf(8)), "fake/one");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/two")}}));
  EXPECT_EQ(Runs(SumOf(8)), "fake/two");
}

// A winner of a neighbouring size that cannot run at this one.
TEST_F(DispatcherTest, AWinnerOfTheHostBackendRunsAtEverySize) {
  JoinWith(host::BackendApi());
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("host/two_shot?chunk=262144")}}));
  for (uint64_t count : {0u, 1u, 16u, 1000u, 65537u, 1u << 20}) {
    const Status run = dispatcher_->Run(SumOf(count));
    EXPECT_TRUE(run) << count << ": " << run.error().ToText();
  }
}

TEST_F(DispatcherTest, ATimeWithoutEndIsNoDeadlineInThePast) {
  JoinFake("choice usual default");
  Call call = SumOf(16);
  call.timeout_ns = INT64_MAX;
  const Status run = dispatcher_->Run(call);
  EXPECT_TRUE(run) << run.error().ToText();
}

TEST_F(DispatcherTest, InPlaceIsACallOfItsOwn) {
  JoinFake("choice usual default\nchoice apart");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/apart")}}));
  Call call = SumOf(16);
  EXPECT_EQ(Runs(call), "fake/apart");
  call.send = call.recv;
  EXPECT_EQ(Runs(call), "fake/usual");
  // Without elements the pointers say nothing.
  call.count = 0;
  EXPECT_EQ(Runs(call), "fake/apart");
  call.send = nullptr;
  EXPECT_EQ(Runs(call), "fake/apart");
}

// More sizes than plans are kept: those used longest ago are made again.
TEST_F(DispatcherTest, KeepsABoundedNumberOfPlans) {
  JoinWith(host::BackendApi());
  for (int round = 0; round < 2; ++round) {
    for (uint64_t count = 1; count <= 1200; ++count) {
      const Status run = dispatcher_->Run(SumOf(count));
      ASSERT_TRUE(run) << run.error().ToText();
      ASSERT_EQ(recv_, send_);
    }
  }
}

// The fake backend with a count of the plans that live.
int live_plans = 0;
cotune_backend_api_t FakeThatCountsPlans() {
  cotune_backend_api_t table = *fake::BackendApi();
  table.prepare = [](cotune_group_t* group, const cotune_problem_t* problem, const char* name,
                     int64_t deadline_ns, cotune_plan_t** plan, cotune_error_t* error) {
    const cotune_status_t status =
        fake::BackendApi()->prepare(group, problem, name, deadline_ns, plan, error);
    if (status == COTUNE_OK) ++live_plans;
    return status;
  };
  table.plan_destroy = [](cotune_plan_t* plan) {
    --live_plans;
    fake::BackendApi()->plan_destroy(plan);
  };
  return table;
}

TEST_F(DispatcherTest, TablesThatFollowEachOtherLeaveABoundedNumberOfPlans) {
  static const cotune_backend_api_t backend = FakeThatCountsPlans();
  live_plans = 0;
  JoinWith(&backend, "choice a default; choice b");
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    const ChoiceId winner = Id(i % 2 == 0 ? "fake/a" : "fake/b");
    dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, winner}}));
    for (const uint64_t count : {100, 200}) {
      const Call call = SumOf(count);
      ASSERT_TRUE(dispatcher_->Run(call));
      EXPECT_EQ(recv_, std::vector<float>(count, 3.0F));
      EXPECT_EQ(dispatcher_->Explain(call)->choice, winner);
    }
    most = std::max(most, live_plans);
  }
  EXPECT_LE(most, 8 * 2);
  EXPECT_GE(most, 2);
}

TEST_F(DispatcherTest, ACallWithAPlanAllocatesNothing) {
  JoinWith(host::BackendApi());
  const Call call = SumOf(1000);
  ASSERT_TRUE(dispatcher_->Run(call));
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 100; ++i) {
    if (!dispatcher_->Run(call)) FAIL();
  }
  const uint64_t after = AllocationCount();
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace cotune
