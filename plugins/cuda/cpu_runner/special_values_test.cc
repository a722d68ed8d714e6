// Bit patterns that kernels of this family have tripped over, the sentinel first of all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

// Every pattern meets every other at some element.
std::vector<Bytes> PatternInputs(const Problem& p, const std::vector<uint32_t>& patterns) {
  const size_t width = ElementBytes(p.type);
  std::vector<Bytes> inputs;
  uint64_t stride = 1;
  for (int r = 0; r < p.world_size; ++r) {
    Bytes input(SendElements(p) * width);
    for (uint64_t i = 0; i < SendElements(p); ++i) {
      const uint32_t bits = patterns[i / stride % patterns.size()];
      std::memcpy(input.data() + i * width, &bits, width);
    }
    inputs.push_back(input);
    stride *= patterns.size();
  }
  return inputs;
}

constexpr std::string_view kFloatTypes[] = {"F32", "F16", "BF16"};

std::vector<uint32_t> Patterns(std::string_view type) {
  if (type == "F32") {
    return {0x00000000, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000,
            0x7FC00000, 0xFFFFFFFF, 0x7FFFFFFF, 0x00000001};
  }
  const bool is_half = type == "F16";
  return {0x0000,
          0x8000,
          is_half ? 0x3C00u : 0x3F80u,
          is_half ? 0x7C00u : 0x7F80u,
          is_half ? 0xFC00u : 0xFF80u,
          0x7FFF,
          0xFFFF,
          0x0001};
}

// The reduction of an element in rank order, in f32 and rounded once. The evaluator says nothing of
// minima and maxima of which some are NaN; these kernels keep it.
double ReducedInRankOrder(const Problem& p, const std::vector<std::vector<double>>& inputs,
                          uint64_t element) {
  auto total = static_cast<float>(inputs[0][element]);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const auto next = static_cast<float>(inputs[rank][element]);
    if (std::isnan(total) || std::isnan(next)) {
      total = std::numeric_limits<float>::quiet_NaN();
    } else if (p.reduction == "PRODUCT") {
      total *= next;
    } else if (p.reduction == "MIN") {
      total = std::min(total, next);
    } else if (p.reduction == "MAX") {
      total = std::max(total, next);
    } else {
      total += next;
    }
  }
  if (p.reduction == "AVERAGE") total /= static_cast<float>(p.world_size);
  return Rounded(p.type, total);
}

TEST(SpecialValuesTest, FloatsComeOutAsTheyMustAndTheSameOnAllRanks) {
  for (const std::string_view type : kFloatTypes) {
    for (const KernelVariant* v :
         Variants({.collective = "ALL_REDUCE", .type = type, .world_size = 3})) {
      const Problem p{v->collective, v->type, v->reduction, 9 * 9 * 9, 3, 0};
      RanksOnCpu ranks(3);
      Call call(*v, {.count = p.count}, PatternInputs(p, Patterns(type)));
      ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 3)) << NameOf(*v);
      EXPECT_EQ(ranks.failure(0).is_set, 0u) << NameOf(*v);
      std::vector<std::vector<double>> inputs;
      for (const Bytes& input : call.inputs()) inputs.push_back(FloatsOf(type, input));
      const Bytes received = call.Received(0);
      const std::vector<double> floats = FloatsOf(type, received);
      for (uint64_t i = 0; i < p.count; ++i) {
        const double want = ReducedInRankOrder(p, inputs, i);
        const double got = floats[i];
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : want == got)
            << NameOf(*v) << " element " << i << ": " << got << " instead of " << want;
      }
      for (int rank = 1; rank < 3; ++rank) {
        EXPECT_EQ(call.Received(rank), received) << NameOf(*v) << " rank " << rank;
      }
    }
  }
}

// -0 + -0 is -0: the kernels must not add to a zero of their own.
TEST(SpecialValuesTest, NegativeZeroKeepsItsSign) {
  for (const KernelVariant* v :
       Variants({.collective = "ALL_REDUCE", .type = "F32", .reduction = "SUM", .world_size = 4})) {
    const Problem p{v->collective, v->type, v->reduction, 50, 4, 0};
    RanksOnCpu ranks(4);
    Call call(*v, {.count = p.count}, PatternInputs(p, {0x80000000}));
    ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 4));
    // Not Difference(): for the evaluator either zero is right.
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(call.Received(rank), call.inputs()[0]) << NameOf(*v) << " rank " << rank;
    }
  }
}

static_assert(kEscapeMask == 0x5BD1E995A3C59AC3ull, "kCannotBeSent of tests/gpu is its complement");

// All of them are moved, some reduced: by minimum and maximum, which keep one of the patterns, and
// by sums.
TEST(SpecialValuesTest, WhatLooksLikeAnEmptySlotArrives) {
  size_t kernels = 0;
  for (const int world : {2, 3, 4}) {
    RanksOnCpu ranks(world);
    for (const KernelVariant* v : Variants({.transport = "ESCAPE", .world_size = world})) {
      const bool is_float = v->type.starts_with("F") || v->type == "BF16";
      if (is_float && !v->reduction.empty()) continue;  // their NaNs have no order
      for (const size_t offset : {0, 8}) {
        const Problem p{v->collective, v->type, v->reduction, 1201, world, 1};
        Call call(*v, {.count = p.count, .offset_bytes = offset, .root = 1}, EscapedInputs(p));
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, seed)) << NameOf(*v);
          ASSERT_EQ(call.Difference(), "");
          ASSERT_EQ(ranks.failure(0).is_set, 0u) << NameOf(*v);
        }
      }
      ++kernels;
    }
    EXPECT_TRUE(ranks.ScratchIsClean());
  }
  EXPECT_GE(kernels, 40u);
}

// Data that is only moved arrives bit by bit, whatever it is.
TEST(SpecialValuesTest, MovedBitsStayAsTheyAre) {
  for (const KernelVariant* v : Variants({.world_size = 3})) {
    if (!v->reduction.empty() || ElementBytes(v->type) > 4) continue;
    const Problem p{v->collective, v->type, v->reduction, 300, 3, 1};
    RanksOnCpu ranks(3);
    Call call(*v, {.count = p.count, .root = 1},
              PatternInputs(p, {0xFFFFFFFF, 0, 0x80000000, 0x7FFFFFFF, 1, 0x00010001}));
    ASSERT_TRUE(ranks.Run([&](int rank) { call.Launch(ranks, rank); }, 5));
    EXPECT_EQ(call.Difference(), "");
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
