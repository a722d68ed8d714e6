// A rank that never comes, and a host that aborts: every thread leaves, and the record says why.
#include <gtest/gtest.h>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_block.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

// More than queues hold: who sends and takes nothing is done once all is on its way.
uint64_t CountFor(const KernelVariant& v) { return v.transport == "QUEUED" ? 100'000 : 500; }

TEST(FaultsTest, AnAbsentRankIsNamed) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 3})) {
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(100'000);
    Call call(*v, {.count = CountFor(*v), .blocks = 4, .resident_blocks = 2});
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          if (rank != 1) call.Launch(ranks, rank);
        },
        5))
        << NameOf(*v);
    for (const int rank : {0, 2}) {
      EXPECT_EQ(ranks.failure(rank).is_set, 1u) << NameOf(*v) << " rank " << rank;
      EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kTimeout) << NameOf(*v) << " rank " << rank;
    }
    // In two_shot, one survivor may first wait for the other, who waits for the absent rank.
    EXPECT_TRUE(PoisonPeer(ranks.failure(0).poison) == 1 ||
                PoisonPeer(ranks.failure(2).poison) == 1)
        << NameOf(*v);
  }
}

// Packs that are there and escaped are no rank that is missing.
TEST(FaultsTest, AnAbsentRankIsNamedWhateverTheOthersSend) {
  int kernels = 0;
  for (const KernelVariant* v : OneOfEachKind({.transport = "ESCAPE", .world_size = 3})) {
    if (!v->reduction.empty() || v->collective == "BROADCAST") continue;
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(100'000);
    const Problem p{v->collective, v->type, v->reduction, 500, 3, 0};
    Call call(*v, {.count = p.count}, EscapedInputs(p));
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          if (rank != 1) call.Launch(ranks, rank);
        },
        9))
        << NameOf(*v);
    EXPECT_EQ(PoisonPeer(ranks.failure(0).poison), 1) << NameOf(*v);
    EXPECT_EQ(PoisonPeer(ranks.failure(2).poison), 1) << NameOf(*v);
    ++kernels;
  }
  EXPECT_EQ(kernels, 2);
}

void ExpectAbortEndsEveryWait(const KernelVariant& v, unsigned int looked_tick) {
  RanksOnCpu ranks(4);
  ranks.SetLookedTick(looked_tick);
  ranks.set_timeout_ns(50'000'000);  // far beyond the abort
  Call call(v, {.count = CountFor(v), .blocks = 3});
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        if (rank != 3) return call.Launch(ranks, rank);
        RanksOnCpu::Delay(100'000);
        for (int r = 0; r < 3; ++r) ranks.Abort(r);
      },
      6))
      << NameOf(v);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.failure(rank).is_set, 1u) << NameOf(v) << " rank " << rank;
    EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kAborted) << NameOf(v) << " rank " << rank;
  }
}

TEST(FaultsTest, AbortEndsEveryWait) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 4})) ExpectAbortEndsEveryWait(*v, 0);
}

// Ticks are the low bits of a clock that runs for years, and the clock of the runner begins at 0.
TEST(FaultsTest, AbortEndsEveryWaitWheneverTheHostWasLastAsked) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 4})) {
    for (const unsigned int looked_tick : {(1u << 31) - 100, ~0u}) {
      ExpectAbortEndsEveryWait(*v, looked_tick);
    }
  }
}

// All threads of a launch that waits for a late rank look whether the host has aborted.
TEST(FaultsTest, OneThreadOfARankReadsHostMemoryInATick) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 2})) {
    RanksOnCpu ranks(2);
    Call call(*v, {.count = CountFor(*v), .blocks = 4});
    const uint64_t loads_before = host_word_loads;
    uint64_t waited_ns = 0;
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          const uint64_t begin_ns = FiberScheduler::NowNs();
          if (rank == 1) RanksOnCpu::Delay(3'000'000);
          call.Launch(ranks, rank);
          if (rank == 0) waited_ns = FiberScheduler::NowNs() - begin_ns;
        },
        7))
        << NameOf(*v);
    const uint64_t loads = host_word_loads - loads_before;
    EXPECT_GT(loads, 0u) << NameOf(*v);
    EXPECT_LE(loads, 2 * ((waited_ns >> kTickBits) + 2)) << NameOf(*v) << " in " << waited_ns;
    EXPECT_FALSE(ranks.HasFailed(0));
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
