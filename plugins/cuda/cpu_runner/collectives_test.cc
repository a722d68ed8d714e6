// Every kernel with every type, reduction and world against plain loops.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

constexpr uint64_t kCounts[] = {0, 1, 2, 3, 17, 1000, 4099};

// A group is kept for all calls of its world, so that sizes, grids and kernels change from one call
// to the next.
void CheckAll(std::span<const KernelVariant> variants) {
  std::vector<std::unique_ptr<RanksOnCpu>> groups(kRanksMax + 1);
  unsigned int n = 0;
  for (const KernelVariant& v : variants) {
    auto& ranks = groups[static_cast<size_t>(v.world_size)];
    if (ranks == nullptr) ranks = std::make_unique<RanksOnCpu>(v.world_size);
    for (const uint64_t count : kCounts) {
      ++n;
      const CallShape shape{.count = count,
                            .blocks = n % 3 + 1,
                            .threads = n % 2 != 0 ? 8u : 16u,
                            .offset_bytes = n % 5 == 0 ? ElementBytes(v.type) : 0,
                            .salt = n,
                            .root = static_cast<int>(n) % v.world_size,
                            .chunk_bytes = n % 4 == 0 ? 4096 : 512};
      Call call(v, shape);
      ASSERT_TRUE(ranks->Run([&](int rank) { call.Launch(*ranks, rank); }, n)) << NameOf(v);
      ASSERT_EQ(call.Difference(), "");
      ASSERT_EQ(ranks->failure(0).is_set, 0u) << NameOf(v);
    }
  }
  for (const auto& ranks : groups) {
    if (ranks == nullptr) continue;
    EXPECT_TRUE(ranks->ScratchIsClean());
  }
}

TEST(CollectivesTest, AllReduceOneShot) { CheckAll(kOneShotVariants); }
TEST(CollectivesTest, AllReduceTwoShot) { CheckAll(kTwoShotVariants); }
TEST(CollectivesTest, ReduceScatter) { CheckAll(kReduceScatterVariants); }
TEST(CollectivesTest, CollectivesThatMove) { CheckAll(kMoveVariants); }
TEST(CollectivesTest, Rings) { CheckAll(kRingVariants); }
TEST(CollectivesTest, Trees) { CheckAll(kTreeVariants); }

TEST(CollectivesTest, BuffersAtEveryAddress) {
  for (const char* type : {"F32", "BF16", "U8"}) {
    for (const KernelVariant* v : Variants({.type = type, .world_size = 3})) {
      if (!v->reduction.empty() && v->reduction != "SUM") continue;
      RanksOnCpu ranks(3);
      for (size_t offset = 0; offset < 16; offset += ElementBytes(type)) {
        Call call(*v, {.count = 77, .offset_bytes = offset});
        ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, offset));
        ASSERT_EQ(call.Difference(), "") << "offset " << offset;
      }
    }
  }
}

// Blocks end anywhere within a pack, and those behind them begin there.
TEST(CollectivesTest, BlocksOfEverySize) {
  for (const int world : {2, 3, 5}) {
    for (const KernelVariant* v : Variants({.type = "U8", .world_size = world})) {
      if (!v->reduction.empty() && v->reduction != "SUM" && v->reduction != "AVERAGE") continue;
      RanksOnCpu ranks(world);
      for (uint64_t count = 1; count < 50; ++count) {
        Call call(*v, {.count = count,
                       .blocks = 1,
                       .offset_bytes = count % 3 == 0 ? count % 16 : 0,
                       .salt = static_cast<unsigned int>(count),
                       .root = world - 1});
        ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, count));
        ASSERT_EQ(call.Difference(), "");
      }
    }
  }
}

TEST(CollectivesTest, InPlace) {
  for (const KernelVariant* v : Variants({.world_size = 4})) {
    if (!v->reduction.empty() && v->reduction != "SUM") continue;
    // Data that a rank still has to send would be overwritten, so that this is no choice (see
    // RefusalOf).
    if (v->transport == "ZERO_COPY" && v->collective == "ALL_TO_ALL") continue;
    RanksOnCpu ranks(4);
    for (const uint64_t count : {1, 17, 1000}) {
      Call call(*v, {.count = count, .in_place = true, .root = 2});
      ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, count));
      ASSERT_EQ(call.Difference(), "");
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
