// Every kernel with every type, reduction and world against the reference evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

// ---- The check itself: a kernel that writes what a test wants to be received -------------------

std::vector<Bytes>& Forged() {
  static std::vector<Bytes> of_ranks;
  return of_ranks;
}

void WriteForged(KernelArguments call) {
  const Bytes& received = Forged()[static_cast<size_t>(call.rank)];
  std::memcpy(call.recv, received.data(), received.size());
}

constexpr uint64_t kForgedCount = 200;

KernelVariant ForgedVariant(std::string_view collective, std::string_view type,
                            std::string_view reduction) {
  return {collective, "forged", "", type, reduction, 3, 1, WriteForged};
}

// What the check says when the ranks have received this, of data that ExactInput gives.
std::string DifferenceOf(const KernelVariant& v, std::vector<Bytes> received) {
  Forged() = std::move(received);
  RanksOnCpu ranks(v.world_size);
  Call call(v, {.count = kForgedCount, .blocks = 1, .threads = 1, .root = 1});
  EXPECT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 1));
  return call.Difference();
}

std::vector<Bytes> RightOutputs(const Problem& p, std::vector<Bytes> inputs = {}) {
  for (int rank = 0; inputs.size() < static_cast<size_t>(p.world_size); ++rank) {
    inputs.push_back(ExactInput(p, rank, 1));
  }
  std::vector<Bytes> outputs;
  for (int rank = 0; rank < p.world_size; ++rank) {
    outputs.push_back(ExpectedOutput(p, rank, inputs));
  }
  return outputs;
}

TEST(CallTest, AWrongByteSwappedBlocksAndAnotherRootShow) {
  for (const std::string_view collective : {"ALL_GATHER", "ALL_TO_ALL", "BROADCAST"}) {
    const KernelVariant v = ForgedVariant(collective, "BF16", "");
    const Problem p{v.collective, v.type, v.reduction, kForgedCount, v.world_size, 1};
    const std::vector<Bytes> right = RightOutputs(p);
    EXPECT_EQ(DifferenceOf(v, right), "");
    for (const size_t at : {size_t{0}, right[2].size() / 2, right[2].size() - 1}) {
      std::vector<Bytes> received = right;
      received[2][at] ^= 1;
      EXPECT_NE(DifferenceOf(v, received), "") << collective << " byte " << at;
    }
    std::vector<Bytes> received = right;
    const auto middle = received[0].begin() + static_cast<ptrdiff_t>(received[0].size() / 3);
    std::rotate(received[0].begin(), middle, received[0].end());
    EXPECT_NE(DifferenceOf(v, received), "") << collective << " blocks";
    if (collective != "BROADCAST") continue;
    Problem other = p;
    other.root = 2;
    EXPECT_NE(DifferenceOf(v, RightOutputs(other)), "");
  }
}

TEST(CallTest, ARankThatIsMissingInASumShows) {
  for (const std::string_view type : {"F32", "F64", "F16", "BF16", "I32", "I64", "U8"}) {
    for (const std::string_view reduction : {"SUM", "PRODUCT", "MIN", "MAX", "AVERAGE"}) {
      const KernelVariant v = ForgedVariant("REDUCE_SCATTER", type, reduction);
      const Problem p{v.collective, v.type, v.reduction, kForgedCount, v.world_size, 0};
      EXPECT_EQ(DifferenceOf(v, RightOutputs(p)), "");
      const Bytes twice = ExactInput(p, 0, 1);
      EXPECT_NE(DifferenceOf(v, RightOutputs(p, {twice, twice, ExactInput(p, 2, 1)})), "")
          << type << " " << reduction;
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
