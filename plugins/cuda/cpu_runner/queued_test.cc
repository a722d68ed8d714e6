// Rings and trees promise more than right values: sums that are rounded once and alike everywhere,
// and queues that hold across launches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "plugins/cuda/cpu_runner/float16_bits.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

constexpr std::string_view kQueued = "QUEUED";

// Draws 16-bit floats from [low, 2 * low), of which no sum is exact.
std::vector<Bytes> RandomInputs(const Problem& p, float low) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> uniform(low, 2 * low);
  std::vector<Bytes> inputs;
  for (int r = 0; r < p.world_size; ++r) {
    Bytes input(SendElements(p) * 2);
    for (uint64_t i = 0; i < SendElements(p); ++i) {
      const float value = uniform(random);
      const uint16_t bits = p.type == "F16" ? F16BitsFromFloat(value) : Bf16BitsFromFloat(value);
      std::memcpy(input.data() + i * 2, &bits, 2);
    }
    inputs.push_back(input);
  }
  return inputs;
}

std::vector<const KernelVariant*> NarrowSums() {
  std::vector<const KernelVariant*> found;
  for (const char* type : {"BF16", "F16"}) {
    for (const char* collective : {"ALL_REDUCE", "REDUCE_SCATTER"}) {
      for (const KernelVariant* v : Variants({.collective = collective,
                                    .transport = kQueued,
                                    .type = type,
                                    .reduction = "SUM"})) {
        found.push_back(v);
      }
    }
  }
  return found;
}

// Half a unit in the last place of a result, and a little for the additions in f32.
double LargestError(const Problem& p, double sum) {
  const int fraction_bits = p.type == "F16" ? 10 : 7;
  return std::ldexp(1.001, std::ilogb(sum) - fraction_bits - 1);
}

TEST(QueuedTest, SumsAreRoundedOnce) {
  const auto variants = NarrowSums();
  ASSERT_GE(variants.size(), 12u);
  for (const KernelVariant* v : variants) {
    const Problem p{v->collective, v->type, v->reduction, 1500, v->world_size, 0};
    RanksOnCpu ranks(p.world_size);
    Call call(*v, {.count = p.count}, RandomInputs(p, 100));
    ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 3));
    for (int rank = 0; rank < p.world_size; ++rank) {
      const std::vector<double> received = FloatsOf(p.type, call.Received(rank));
      const std::vector<double> sums = UnroundedOutput(p, rank, call.inputs());
      for (uint64_t i = 0; i < p.count; ++i) {
        ASSERT_NEAR(received[i], sums[i], LargestError(p, sums[i]))
            << NameOf(*v) << " rank " << rank << " element " << i;
      }
    }
  }
}

TEST(QueuedTest, AllRanksHaveTheSameBitsWheneverItRuns) {
  for (const KernelVariant* v : NarrowSums()) {
    if (v->collective != "ALL_REDUCE") continue;
    const Problem p{v->collective, v->type, v->reduction, 700, v->world_size, 0};
    Bytes first;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      RanksOnCpu ranks(p.world_size);
      Call call(*v, {.count = p.count}, RandomInputs(p, 1));
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            if (rank == static_cast<int>(seed) % p.world_size) RanksOnCpu::Delay(50'000);
            call.Launch(ranks, rank);
          },
          seed));
      if (seed == 0) first = call.Received(0);
      for (int rank = 0; rank < p.world_size; ++rank) {
        ASSERT_EQ(call.Received(rank), first) << NameOf(*v) << " rank " << rank;
      }
    }
  }
}

// The sum of all is more than f16 holds, the average is not.
TEST(QueuedTest, AveragesDoNotOverflowOnTheWay) {
  const auto variants = Variants({.transport = kQueued, .type = "F16", .reduction = "AVERAGE"});
  ASSERT_GE(variants.size(), 4u);
  for (const KernelVariant* v : variants) {
    const Problem p{v->collective, v->type, v->reduction, 200, v->world_size, 0};
    RanksOnCpu ranks(p.world_size);
    Call call(*v, {.count = p.count}, RandomInputs(p, 32000));
    ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 3));
    const std::vector<double> received = FloatsOf(p.type, call.Received(0));
    const std::vector<double> averages = UnroundedOutput(p, 0, call.inputs());
    for (uint64_t i = 0; i < p.count; ++i) {
      ASSERT_NEAR(received[i], averages[i], LargestError(p, averages[i]))
          << NameOf(*v) << " element " << i;
    }
  }
}

TEST(QueuedTest, CountsWrapAround) {
  for (const KernelVariant* v : OneOfEachKind({.transport = kQueued, .world_size = 4})) {
    for (const uint64_t before : {1ull, 4ull, 9ull}) {
      RanksOnCpu ranks(4);
      ranks.SetQueueCounts((1ull << 32) - before);
      Call first(*v, {.count = 5000, .chunk_bytes = 512});
      Call second(*v, {.count = 3000, .salt = 2, .chunk_bytes = 512});
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            first.Launch(ranks, rank);
            second.Launch(ranks, rank);
          },
          before));
      ASSERT_EQ(first.Difference(), "");
      ASSERT_EQ(second.Difference(), "");
    }
  }
}

// A root sends ahead, launch after launch, as far as queues go, and waits for who is late.
TEST(QueuedTest, ManyBroadcastsAreOnTheirWayAtOnce) {
  for (const KernelVariant* v :
       OneOfEachKind({.collective = "BROADCAST", .transport = kQueued, .world_size = 5})) {
    for (int late = 0; late < 5; ++late) {
      RanksOnCpu ranks(5);
      std::vector<std::unique_ptr<Call>> calls;
      for (unsigned int i = 0; i < 24; ++i) {
        calls.push_back(std::make_unique<Call>(
            *v, CallShape{.count = 700 + i * 50, .salt = i, .root = static_cast<int>(i / 12)}));
      }
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            for (const auto& call : calls) {
              if (rank == late) RanksOnCpu::Delay(20'000);
              call->Launch(ranks, rank);
            }
          },
          static_cast<uint64_t>(late)));
      for (const auto& call : calls) ASSERT_EQ(call->Difference(), "") << "late " << late;
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
