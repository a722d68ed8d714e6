// Tests the arguments that NCCL is called with, for every collective, type and reduction.
#include "plugins/nccl/collective_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plugins/nccl/testing/fakes.h"

namespace cotune::nccl {
namespace {

// The numbers of nccl.h, written down a second time.
const std::map<ElementType, int> kTypeNumbers = {
    {ElementType::kU8, 1},  {ElementType::kI32, 2}, {ElementType::kI64, 4}, {ElementType::kF16, 6},
    {ElementType::kF32, 7}, {ElementType::kF64, 8}, {ElementType::kBf16, 9}};
const std::map<Reduction, int> kReductionNumbers = {{Reduction::kSum, 0},
                                                    {Reduction::kProduct, 1},
                                                    {Reduction::kMax, 2},
                                                    {Reduction::kMin, 3},
                                                    {Reduction::kAverage, 4}};

class CollectiveCallTest : public ::testing::Test {
 protected:
  CollectiveCallTest()
      : state_(LoadFakeNccl()), nccl_(*NcclLibrary::Open("", {})), communicator_(NewDirect()) {}
  ~CollectiveCallTest() override { nccl_->CommAbort(communicator_); }

  std::vector<FakeCall> CallsOf(const Problem& problem) {
    state_.calls.clear();
    EXPECT_EQ(Enqueue(nccl_, problem, {send_, receive_}, communicator_, stream_), kNcclSuccess);
    EXPECT_TRUE(state_.misuse.empty());
    return state_.calls;
  }

  FakeNcclState& state_;
  NcclLibrary nccl_;
  NcclComm communicator_;
  unsigned char send_[8192];
  unsigned char receive_[8192];
  gpu::CuStream stream_ = reinterpret_cast<gpu::CuStream>(0x77);

 private:
  NcclComm NewDirect() {
    NcclUniqueId id;
    nccl_->GetUniqueId(&id);
    NcclConfig config;
    config.version = 22809;
    NcclComm made = nullptr;
    nccl_->CommInitRankConfig(&made, 1, id, 0, &config);
    state_.misuse.clear();  // of a blocking init: the test has one rank
    return made;
  }
};

TEST_F(CollectiveCallTest, OneCallWithEveryTypeAndReduction) {
  const std::map<Collective, std::string> names = {{Collective::kAllReduce, "AllReduce"},
                                                   {Collective::kAllGather, "AllGather"},
                                                   {Collective::kReduceScatter, "ReduceScatter"},
                                                   {Collective::kBroadcast, "Broadcast"}};
  for (const auto& [collective, name] : names) {
    for (const auto& [type, type_number] : kTypeNumbers) {
      for (const auto& [reduction, reduction_number] : kReductionNumbers) {
        Problem problem{.collective = collective, .reduction = reduction, .type = type};
        problem.count = 13;
        problem.world_size = 4;
        problem.root = collective == Collective::kBroadcast ? 2 : 0;
        const auto calls = CallsOf(problem);
        ASSERT_EQ(calls.size(), 1u);
        EXPECT_EQ(calls[0].name, name);
        EXPECT_EQ(calls[0].send, send_);
        EXPECT_EQ(calls[0].receive, receive_);
        EXPECT_EQ(calls[0].count, 13u);
        EXPECT_EQ(calls[0].type, type_number);
        EXPECT_EQ(calls[0].op, sdk::Reduces(problem) ? reduction_number : -1);
        EXPECT_EQ(calls[0].peer, collective == Collective::kBroadcast ? 2 : -1);
        EXPECT_EQ(calls[0].stream, stream_);
      }
    }
  }
}

TEST_F(CollectiveCallTest, AllToAllIsOneGroupOfSendsAndReceives) {
  for (const auto& [type, type_number] : kTypeNumbers) {
    Problem problem{.collective = Collective::kAllToAll, .type = type};
    problem.count = 5;
    problem.world_size = 3;
    const size_t block_bytes = 5 * sdk::ElementBytes(type);
    const auto calls = CallsOf(problem);
    ASSERT_EQ(calls.size(), 6u);
    for (size_t peer = 0; peer < 3; ++peer) {
      const FakeCall& sent = calls[2 * peer];
      const FakeCall& received = calls[2 * peer + 1];
      EXPECT_EQ(sent.name, "Send");
      EXPECT_EQ(sent.send, send_ + peer * block_bytes);
      EXPECT_EQ(received.name, "Recv");
      EXPECT_EQ(received.receive, receive_ + peer * block_bytes);
      for (const FakeCall& call : {sent, received}) {
        EXPECT_EQ(call.count, 5u);
        EXPECT_EQ(call.type, type_number);
        EXPECT_EQ(call.peer, static_cast<int>(peer));
        EXPECT_EQ(call.group_depth, 1);
        EXPECT_EQ(call.stream, stream_);
      }
    }
  }
}

TEST_F(CollectiveCallTest, AFailedSendEndsTheGroup) {
  state_.collective_result = kNcclInvalidArgument;
  Problem problem{.collective = Collective::kAllToAll, .count = 5, .world_size = 3};
  EXPECT_EQ(Enqueue(nccl_, problem, {send_, receive_}, communicator_, stream_),
            kNcclInvalidArgument);
  state_.collective_result = kNcclSuccess;
  EXPECT_EQ(CallsOf({.collective = Collective::kAllReduce, .count = 1}).at(0).group_depth, 0);
}

TEST_F(CollectiveCallTest, NothingIsCalledForAnEmptyProblem) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllToAll}) {
    EXPECT_TRUE(CallsOf({.collective = collective, .count = 0, .world_size = 4}).empty());
  }
}

}  // namespace
}  // namespace cotune::nccl
