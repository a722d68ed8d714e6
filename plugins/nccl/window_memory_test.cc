// Symmetric memory of a group, and the choice that uses it.
#include "plugins/nccl/window_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <numeric>

#include "plugins/nccl/group.h"
#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallMethod kWindows{.uses_windows = true, .decision = std::nullopt};
// The groups of these tests compare no calls.
const CallRecord kRecord;
// A caller's memory, aligned as that of the driver is.
template <size_t kBytes>
struct alignas(kNcclWinAlignment) Memory {
  unsigned char bytes[kBytes];
};

const gpu::CuStream kStream = reinterpret_cast<gpu::CuStream>(0x77);

class WindowMemoryTest : public ::testing::Test {
 protected:
  WindowMemoryTest() : cuda_(LoadFakeCuda()), state_(LoadFakeNccl()) {
    state_.version = 22809;
    state_.static_tuner = &ncclTunerPlugin_v5;
    state_.has_symmetric_kernels = true;
    state_.calls.clear();
    state_.aborts = 0;
  }
  ~WindowMemoryTest() override {
    EXPECT_THAT(state_.misuse, IsEmpty());
    EXPECT_EQ(state_.communicators, 0);
    EXPECT_EQ(state_.windows, 0);
    EXPECT_EQ(cuda_.objects, 0);
    EXPECT_EQ(job_.keys(), words_left_);
  }

  // Runs the body with each of two ranks' group.
  void WithGroups(const std::function<void(Group& group)>& body) {
    const NcclLibrary nccl = *NcclLibrary::Open("", {});
    RunRanks(2, [&](int rank) {
      const auto gpu = Gpu::Open(rank);
      const int32_t job_ranks[] = {0, 1};
      cotune_group_params_t params{};
      params.struct_size = sizeof(params);
      params.name = "g";
      params.rank = rank;
      params.world_size = 2;
      params.job_ranks = job_ranks;
      params.device = rank;
      params.deadline_ns = Soon();
      auto group = Group::Join(job_.host(), params, **gpu, nccl, false);
      ASSERT_TRUE(group) << group.error().message;
      body(**group);
    });
  }

  static Problem Sum(uint64_t count) {
    return {.collective = Collective::kAllReduce, .count = count, .world_size = 2};
  }

  FakeCudaState& cuda_;
  FakeNcclState& state_;
  JobForTest job_;
  // Words of ranks that told of a failure stay: a slower rank may read them after the group is
  // gone.
  size_t words_left_ = 0;
};

TEST_F(WindowMemoryTest, SymmetricKernelsRunOnRegisteredBuffersAndNoOthers) {
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<1 << 20>>();
    unsigned char* bytes = memory->bytes;
    const auto registered = group.RegisterMemory(bytes, 1 << 20, Soon());
    ASSERT_TRUE(registered) << registered.error().message;
    const CallBuffers inside{bytes, bytes + (1 << 19)};
    EXPECT_TRUE(group.Launch(Sum(1 << 17), kWindows, kRecord, inside, kStream, Soon()));
    // The other ways run on the same buffers with the algorithm that they name.
    const CallMethod ring{.decision = ForcedDecision{Algorithm::kRing, Protocol::kLl, 4}};
    EXPECT_TRUE(group.Launch(Sum(1 << 17), ring, kRecord, inside, kStream, Soon()));
    EXPECT_TRUE(group.Launch(Sum(1 << 17), CallMethod{}, kRecord, inside, kStream, Soon()));
    const CallBuffers beyond{bytes, bytes + (1 << 19) + 4};
    const auto refused = group.Launch(Sum(1 << 17), kWindows, kRecord, beyond, kStream, Soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, COTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(refused.error().message, HasSubstr("has registered"));
  });
  int symmetric = 0;
  int others = 0;
  for (const FakeCall& call : state_.calls) {
    if (call.count == 1 << 17) ++(call.took_symmetric_kernel ? symmetric : others);
  }
  EXPECT_EQ(symmetric, 2);
  EXPECT_EQ(others, 4);
}

// NCCL's symmetric kernels read and write a window in every replay.
TEST_F(WindowMemoryTest, AWindowOfACapturedCallGoesWithTheGraph) {
  state_.is_capturing = &cuda_.is_capturing;
  cuda_.is_capturing = true;
  const auto memory = std::make_unique<Memory<1 << 20>>();
  WithGroups([&](Group& group) {
    unsigned char* bytes = memory->bytes;
    ASSERT_TRUE(group.RegisterMemory(bytes, 1 << 20, Soon()));
    const CallBuffers inside{bytes, bytes + (1 << 19)};
    EXPECT_TRUE(group.Launch(Sum(1 << 17), kWindows, kRecord, inside, kStream, Soon()));
    const std::lock_guard lock(state_.mutex);
    state_.graphs_live = true;
  });
  cuda_.is_capturing = false;
  state_.is_capturing = nullptr;
  cuda_.DestroyGraphs();
  std::unique_lock lock(state_.mutex);
  EXPECT_EQ(state_.windows, 2);
  state_.graphs_live = false;
  state_.changed.notify_all();
  EXPECT_TRUE(state_.changed.wait_for(lock, std::chrono::seconds(60),
                                      [&] { return state_.communicators == 0; }));
}

TEST_F(WindowMemoryTest, BlocksOfTheCollectiveCount) {
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<12'288>>();
    unsigned char* bytes = memory->bytes;
    ASSERT_TRUE(group.RegisterMemory(bytes, 12'288, Soon()));
    // One block of 4096 bytes and two: exactly what there is.
    Problem problem = Sum(1024);
    problem.collective = Collective::kAllGather;
    EXPECT_TRUE(group.Launch(problem, kWindows, kRecord, {bytes, bytes + 4096}, kStream, Soon()));
    EXPECT_FALSE(group.Launch(problem, kWindows, kRecord, {bytes, bytes + 8192}, kStream, Soon()));
    problem.collective = Collective::kReduceScatter;
    EXPECT_TRUE(group.Launch(problem, kWindows, kRecord, {bytes, bytes + 8192}, kStream, Soon()));
    EXPECT_FALSE(group.Launch(problem, kWindows, kRecord, {bytes + 8192, bytes}, kStream, Soon()));
  });
}

TEST_F(WindowMemoryTest, AnotherKernelThanTheSymmetricOneIsNoSilentSuccess) {
  state_.has_symmetric_kernels = false;
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<8192>>();
    unsigned char* bytes = memory->bytes;
    ASSERT_TRUE(group.RegisterMemory(bytes, 8192, Soon()));
    const auto launched =
        group.Launch(Sum(1024), kWindows, kRecord, {bytes, bytes + 4096}, kStream, Soon());
    ASSERT_FALSE(launched);
    EXPECT_EQ(launched.error().status, COTUNE_UNSUPPORTED);
  });
}

TEST_F(WindowMemoryTest, UnregisteredMemoryIsNoLongerThere) {
  WithGroups([&](Group& group) {
    const auto first = std::make_unique<Memory<4096>>();
    const auto second = std::make_unique<Memory<4096>>();
    ASSERT_TRUE(group.RegisterMemory(first->bytes, 4096, Soon()));
    ASSERT_TRUE(group.RegisterMemory(second->bytes, 4096, Soon()));
    const CallBuffers both{first->bytes, second->bytes};
    EXPECT_TRUE(group.Launch(Sum(1024), kWindows, kRecord, both, kStream, Soon()));
    group.UnregisterMemory(first->bytes);
    EXPECT_FALSE(group.Launch(Sum(1024), kWindows, kRecord, both, kStream, Soon()));
    group.UnregisterMemory(first->bytes);
  });
}

TEST_F(WindowMemoryTest, MemoryThatIsNotAlignedIsRefusedOnAllRanks) {
  std::barrier both_are_out(2);
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<8192>>();
    unsigned char* bytes = memory->bytes + (group.rank() == 1 ? 16 : 0);
    const auto refused = group.RegisterMemory(bytes, 4096, Soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
    EXPECT_THAT(refused.error().message, HasSubstr("multiple of 4096"));
    // Nobody was left in NCCL, waiting for those who did not come.
    both_are_out.arrive_and_wait();
    EXPECT_TRUE(group.RegisterMemory(memory->bytes, 4096, Soon()));
  });
  words_left_ = 2;
}

TEST_F(WindowMemoryTest, AnAbortedGroupLetsGoOfItsMemory) {
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<8192>>();
    ASSERT_TRUE(group.RegisterMemory(memory->bytes, 4096, Soon()));
    group.Abort();
    const auto refused = group.RegisterMemory(memory->bytes + 4096, 4096, Soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, COTUNE_ABORTED);
  });
  words_left_ = 2;
}

TEST_F(WindowMemoryTest, OldNcclHasNone) {
  state_.version = 22602;
  WithGroups([&](Group& group) {
    const auto memory = std::make_unique<Memory<4096>>();
    const auto refused = group.RegisterMemory(memory->bytes, 4096, Soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
    EXPECT_THAT(refused.error().message, HasSubstr("2.26.2"));
  });
}

}  // namespace
}  // namespace cotune::nccl
