// One launch leaves a correct state for the next: many calls in a row, all orders of threads, late
// ranks, and the count of steps where it wraps around.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 29);
}

// Calls of random kernels, sizes and grids, on one group without a pause in between.
std::vector<std::unique_ptr<Call>> RandomCalls(const std::vector<const KernelVariant*>& variants,
                                               int calls, uint64_t seed) {
  constexpr uint64_t kCounts[] = {1, 5, 64, 300, 1000, 2500};
  std::vector<std::unique_ptr<Call>> made;
  for (int i = 0; i < calls; ++i) {
    const uint64_t random = Mix(seed * 1000 + static_cast<uint64_t>(i) + 1);
    const KernelVariant& v = *variants[random % variants.size()];
    const auto blocks = static_cast<unsigned int>(1 + (random >> 20) % 4);
    const CallShape shape{.count = kCounts[(random >> 16) % 6],
                          .blocks = blocks,
                          .threads = 8u << (random >> 24) % 2,
                          .resident_blocks = (random >> 28) % 2 == 0 ? blocks : 1,
                          .salt = static_cast<unsigned int>(i),
                          .root = static_cast<int>((random >> 32) % 7) % v.world_size,
                          .chunk_bytes = 512 << (random >> 36) % 3};
    // Words beside slots of "escape" lie where slots of "lamport" do.
    if (v.reduction.empty() && (random >> 40) % 2 == 0) {
      const Problem p{v.collective, v.type, v.reduction, shape.count, v.world_size, shape.root};
      made.push_back(std::make_unique<Call>(v, shape, EscapedInputs(p)));
    } else {
      made.push_back(std::make_unique<Call>(v, shape));
    }
  }
  return made;
}

void CheckCallsInARow(RanksOnCpu& ranks, int calls, uint64_t seed, Threads threads) {
  const auto made = RandomCalls(OneOfEachKind({.world_size = ranks.world_size()}), calls, seed);
  const bool ended = ranks.Run(
      [&](int rank) {
        for (size_t i = 0; i < made.size(); ++i) {
          // Now and then a rank comes late to a call.
          if (Mix(seed + i * 8 + static_cast<uint64_t>(rank)) % 5 == 0) RanksOnCpu::Delay(20'000);
          made[i]->Launch(ranks, rank);
        }
      },
      seed, threads);
  ASSERT_TRUE(ended) << "seed " << seed;
  for (int r = 0; r < ranks.world_size(); ++r) {
    ASSERT_EQ(ranks.failure(r).is_set, 0u) << "seed " << seed << " rank " << r;
  }
  for (const auto& call : made) ASSERT_EQ(call->Difference(), "") << "seed " << seed;
  ASSERT_TRUE(ranks.ScratchIsClean()) << "seed " << seed;
}

TEST(ProtocolTest, CallsInARowUnderManySchedules) {
  for (const int world : {2, 3, 4, 5}) {
    RanksOnCpu ranks(world);
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      ASSERT_NO_FATAL_FAILURE(CheckCallsInARow(ranks, 8, seed, Threads::kOneForAll));
    }
  }
  RanksOnCpu ranks(8);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_NO_FATAL_FAILURE(CheckCallsInARow(ranks, 6, seed, Threads::kOneForAll));
  }
}

TEST(ProtocolTest, CallsInARowOnRealThreads) {
  RanksOnCpu ranks(3);
  ranks.set_timeout_ns(1ull << 50);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ASSERT_NO_FATAL_FAILURE(CheckCallsInARow(ranks, 6, seed, Threads::kOneForEach));
  }
}

TEST(ProtocolTest, TheCountOfStepsWrapsAround) {
  for (unsigned int before = 0; before < 8; ++before) {
    RanksOnCpu ranks(3, kStepsEnd - 1 - before);
    ASSERT_NO_FATAL_FAILURE(CheckCallsInARow(ranks, 12, before + 1, Threads::kOneForAll));
  }
}

TEST(ProtocolTest, TheCountOfLaunchesWrapsAround) {
  for (unsigned int before = 0; before < 4; ++before) {
    RanksOnCpu ranks(3);
    ranks.SetLaunchCounts(0u - 1 - before);
    ASSERT_NO_FATAL_FAILURE(CheckCallsInARow(ranks, 8, before + 1, Threads::kOneForAll));
  }
}

// A graph replays a launch with the same arguments: only what lies in memory may change.
TEST(ProtocolTest, ALaunchCanBeRepeatedWithNewData) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 4})) {
    RanksOnCpu ranks(4);
    for (unsigned int salt = 0; salt < 5; ++salt) {
      Call call(*v, {.count = 333, .salt = salt});
      ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, salt));
      ASSERT_EQ(call.Difference(), "");
    }
  }
}

// More steps or rounds than scratch has parts: who only sends must not run ahead of who is late.
TEST(ProtocolTest, NobodyRunsAheadOfALateRank) {
  for (int late = 0; late < 4; ++late) {
    for (const KernelVariant* v : OneOfEachKind({.world_size = 4})) {
      RanksOnCpu ranks(4);
      Call call(*v, {.count = 3000, .blocks = 1, .root = 1});
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            if (rank == late) RanksOnCpu::Delay(300'000);
            call.Launch(ranks, rank);
          },
          8));
      ASSERT_EQ(ranks.failure(1).is_set, 0u) << NameOf(*v);
      ASSERT_EQ(call.Difference(), "");
    }
  }
}

TEST(ProtocolTest, OneRankIsLate) {
  for (int late = 0; late < 4; ++late) {
    for (const KernelVariant* v : OneOfEachKind({.world_size = 4})) {
      RanksOnCpu ranks(4);
      Call first(*v, {.count = 900});
      Call second(*v, {.count = 20, .salt = 2});
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            if (rank == late) RanksOnCpu::Delay(300'000);
            first.Launch(ranks, rank);
            if (rank == late) RanksOnCpu::Delay(300'000);
            second.Launch(ranks, rank);
          },
          7));
      ASSERT_EQ(first.Difference(), "");
      ASSERT_EQ(second.Difference(), "");
    }
  }
}

// The other tests rely on it. A kernel whose `count` is an offset writes there, in the arena of the
// last rank only.
TEST(RanksOnCpuTest, AnyByteOfScratchThatIsWrittenIsNoticed) {
  const KernelFunction write_byte = [](KernelArguments arguments) {
    if (arguments.rank == arguments.world_size - 1) {
      arguments.arena[arguments.rank][arguments.count] = 0;
    }
  };
  constexpr unsigned long long kEscapePart = kScratchBegin + kEscapeOffset;
  for (const unsigned long long offset :
       {+kScratchBegin, kScratchBegin + 12'345, kScratchBegin + 2 * kScratchBytes, +kEscapePart,
        kEscapePart + kScratchBytes + 1, kEscapePart + 2 * kScratchBytes + (512 << 10) - 1}) {
    RanksOnCpu ranks(2);
    EXPECT_TRUE(ranks.ScratchIsClean());
    KernelArguments call = {};
    call.count = offset;
    ASSERT_TRUE(ranks.Run([&](int rank) { ranks.Launch(rank, write_byte, call, {}); }, 1));
    EXPECT_FALSE(ranks.ScratchIsClean()) << "offset " << offset;
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
