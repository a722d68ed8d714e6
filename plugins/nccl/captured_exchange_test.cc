// Captured all_to_all calls that NCCL does not complete. Each case that goes through the built
// plugin has a process of its own.
#include "plugins/nccl/captured_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr HandleKinds kNone = 0;
constexpr HandleKinds kFileDescriptor = 1;
constexpr GraphRegistration kDefaults{.nccl_version = 22809};

// Blocks of `count` bf16.
Problem Exchange(uint64_t count) {
  return {.collective = Collective::kAllToAll,
          .type = ElementType::kBf16,
          .count = count,
          .world_size = 2};
}

TEST(WhyNotCapturedTest, OneBufferThatPeersCanMapIsRefused) {
  const Problem problem = Exchange(128 * 8192);
  for (const auto& [send, receive] :
       {std::pair(kNone, kFileDescriptor), std::pair(kFileDescriptor, kNone)}) {
    EXPECT_THAT(WhyNotCaptured(problem, kDefaults, send, receive),
                AllOf(HasSubstr("NCCL 2.28.9 hangs"), HasSubstr("NCCL_GRAPH_REGISTER=0")));
  }
  EXPECT_LT(WhyNotCaptured(problem, kDefaults, kNone, kFileDescriptor).size(),
            sizeof(cotune_error_t::message));
}

TEST(WhyNotCapturedTest, BuffersOfOneKindRun) {
  for (const HandleKinds kinds : {kNone, kFileDescriptor}) {
    EXPECT_EQ(WhyNotCaptured(Exchange(128 * 8192), kDefaults, kinds, kinds), "");
  }
}

TEST(WhyNotCapturedTest, SmallBlocksRun) {
  EXPECT_EQ(WhyNotCaptured(Exchange(8192), kDefaults, kNone, kFileDescriptor), "");
  EXPECT_NE(WhyNotCaptured(Exchange(8193), kDefaults, kNone, kFileDescriptor), "");
  GraphRegistration named = kDefaults;
  named.has_default_ll_threshold = false;
  EXPECT_NE(WhyNotCaptured(Exchange(1), named, kNone, kFileDescriptor), "");
}

TEST(WhyNotCapturedTest, OtherCollectivesAndOneRankRun) {
  Problem problem = Exchange(128 * 8192);
  problem.world_size = 1;
  EXPECT_EQ(WhyNotCaptured(problem, kDefaults, kNone, kFileDescriptor), "");
  problem = Exchange(128 * 8192);
  problem.collective = Collective::kAllGather;
  EXPECT_EQ(WhyNotCaptured(problem, kDefaults, kNone, kFileDescriptor), "");
}

TEST(WhyNotCapturedTest, NcclThatRegistersNothingRuns) {
  const Problem problem = Exchange(128 * 8192);
  EXPECT_EQ(WhyNotCaptured(problem, {.nccl_version = 22205}, kNone, kFileDescriptor), "");
  EXPECT_EQ(
      WhyNotCaptured(problem, {.nccl_version = 22809, .is_on = false}, kNone, kFileDescriptor), "");
}

TEST(GraphRegistrationTest, IsReadAsNcclReadsIt) {
  const auto is_on = [](const char* value) {
    setenv("NCCL_GRAPH_REGISTER", value, 1);
    return GraphRegistration::OfProcess(22809).is_on;
  };
  EXPECT_FALSE(is_on("0"));
  EXPECT_FALSE(is_on("0x0"));
  EXPECT_TRUE(is_on("1"));
  EXPECT_TRUE(is_on(""));
  unsetenv("NCCL_GRAPH_REGISTER");
  EXPECT_TRUE(GraphRegistration::OfProcess(22809).is_on);
  setenv("NCCL_P2P_LL_THRESHOLD", "0", 1);
  EXPECT_FALSE(GraphRegistration::OfProcess(22809).has_default_ll_threshold);
  unsetenv("NCCL_P2P_LL_THRESHOLD");
  EXPECT_TRUE(GraphRegistration::OfProcess(22809).has_default_ll_threshold);
}

cotune_problem_t AbiExchange(uint64_t count) {
  return AbiProblem(COTUNE_ALL_TO_ALL, kAbiF32, COTUNE_REDUCTION_NONE, count, 2);
}

// Both ranks run an exchange of `count` f32 a block; "" or the error of rank 0.
std::string RunExchange(JobForTest& job, uint64_t count) {
  std::string answer;
  RunRanks(2, [&](int r) {
    FakeRank rank(job, "g", r, 2);
    ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
    LoadFakeCuda().is_capturing = true;
    const std::string own = rank.Run(AbiExchange(count), "auto");
    if (r == 0) answer = own;
  });
  LoadFakeCuda().is_capturing = false;
  return answer;
}

size_t SendsOf(const FakeNcclState& state, uint64_t count) {
  return static_cast<size_t>(std::count_if(
      state.calls.begin(), state.calls.end(),
      [&](const FakeCall& call) { return call.name == "Send" && call.count == count; }));
}

TEST(CapturedExchangeDeathTest, NcclDoesNotGetACallThatWouldHang) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    LoadFakeCuda().exportable = FakeRank::Receive();
    EXPECT_THAT(RunExchange(job, 1 << 20), HasSubstr("launch: NCCL 2.28.9 hangs"));
    EXPECT_EQ(SendsOf(state, 1 << 20), 0u);
    EXPECT_EQ(RunExchange(job, 1 << 12), "") << "small blocks";
    EXPECT_EQ(SendsOf(state, 1 << 12), 4u);
    LoadFakeCuda().exportable = FakeRank::Send();
    EXPECT_THAT(RunExchange(job, 1 << 20), HasSubstr("launch: NCCL 2.28.9 hangs"));
    LoadFakeCuda().exportable = nullptr;
    EXPECT_EQ(RunExchange(job, 1 << 20), "") << "two plain buffers";
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

TEST(CapturedExchangeDeathTest, ARefusedCallLeavesTheGroupAsItWas) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    LoadFakeCuda().exportable = FakeRank::Receive();
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2);
      cotune_plan_t* plan = rank.Prepare(AbiExchange(1 << 20), "auto");
      LoadFakeCuda().is_capturing = true;
      EXPECT_EQ(rank.Launch(plan), COTUNE_UNSUPPORTED);
      EXPECT_EQ(rank.Health(), COTUNE_OK);
    });
    LoadFakeCuda().is_capturing = false;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "h", r, 2);
      EXPECT_EQ(rank.Run(AbiExchange(1 << 20), "auto"), "") << "not captured";
    });
    EXPECT_EQ(SendsOf(state, 1 << 20), 4u);
  });
}

TEST(CapturedExchangeDeathTest, TheUsersSwitchOfNcclLetsItRun) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
    JobForTest job;
    LoadFakeCuda().exportable = FakeRank::Receive();
    EXPECT_EQ(RunExchange(job, 1 << 20), "");
  });
}

}  // namespace
}  // namespace cotune::nccl
