// Ranks that make different calls: all of them fail, at once, and know both calls.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>

#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

constexpr uint64_t kNever = 1ull << 50;

// The odd rank makes another call after one that all make; the deadline is never. Then all make one
// more.
void ExpectAllFail(Call& before, Call& call, Call& other, int world_size, int odd,
                   const std::string& what) {
  RanksOnCpu ranks(world_size);
  ranks.set_timeout_ns(kNever);
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        before.Launch(ranks, rank);
        EXPECT_FALSE(ranks.HasFailed(rank)) << what;
        (rank == odd ? other : call).Launch(ranks, rank);
        EXPECT_TRUE(ranks.HasFailed(rank)) << what << " rank " << rank;
        before.Launch(ranks, rank);
      },
      static_cast<uint64_t>(odd) + 1));
  for (int rank = 0; rank < world_size; ++rank) {
    const FailureRecord& failure = ranks.failure(rank);
    ASSERT_EQ(PoisonKind(failure.poison), kMismatch) << what << " rank " << rank;
    const bool is_odd_reporter = PoisonReporter(failure.poison) == odd;
    ASSERT_NE(is_odd_reporter, PoisonPeer(failure.poison) == odd) << what << " rank " << rank;
    EXPECT_TRUE(IsSameCall(failure.own_call, (rank == odd ? other : call).Record()))
        << what << " rank " << rank;
    // A rank that another one has told of it may not have heard of the other call itself.
    const bool is_told = PoisonReporter(failure.poison) != rank;
    if (is_told && IsSameCall(failure.other_call, failure.own_call)) continue;
    EXPECT_TRUE(IsSameCall(failure.other_call, (rank == odd ? call : other).Record()))
        << what << " rank " << rank;
    EXPECT_EQ(failure.other == odd, rank != odd) << what << " rank " << rank;
    EXPECT_EQ(failure.number, 2u) << what << " rank " << rank;
  }
}

struct Kinds {
  const KernelVariant* one;
  const KernelVariant* other;
};

void ExpectKindsFail(const Kinds& kinds, const CallShape& one, const CallShape& other) {
  const int world = kinds.one->world_size;
  const std::string what = NameOf(*kinds.one) + " and " + NameOf(*kinds.other);
  for (const int odd : {0, world - 1}) {
    Call before(*kinds.one, one);
    Call call(*kinds.one, one);
    Call odd_call(*kinds.other, other);
    ASSERT_NO_FATAL_FAILURE(ExpectAllFail(before, call, odd_call, world, odd, what));
  }
}

// Nothing but the result would tell these apart.
TEST(MismatchedCallsTest, AnotherReduction) {
  int pairs = 0;
  for (const char* transport : {"LAMPORT", "ESCAPE", "QUEUED"}) {
    for (const KernelVariant* v : Variants({.transport = transport, .world_size = 3})) {
      if (v->reduction != "SUM" || v->collective != "ALL_REDUCE") continue;
      const auto others = Variants({v->collective, v->algorithm, v->transport, v->type, "MAX", 3});
      if (others.empty()) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectKindsFail({v, others[0]}, {.count = 70}, {.count = 70}));
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 6);
}

TEST(MismatchedCallsTest, AnotherCount) {
  for (const int world : {2, 3}) {
    for (const KernelVariant* v : OneOfEachKind({.world_size = world})) {
      ASSERT_NO_FATAL_FAILURE(ExpectKindsFail({v, v}, {.count = 70}, {.count = 140}));
    }
  }
}

TEST(MismatchedCallsTest, AnotherRoot) {
  int kinds = 0;
  for (const KernelVariant* v : OneOfEachKind({.collective = "BROADCAST", .world_size = 3})) {
    const CallShape one{.count = 70, .root = 1};
    const CallShape other{.count = 70, .root = 2};
    ASSERT_NO_FATAL_FAILURE(ExpectKindsFail({v, v}, one, other));
    ++kinds;
  }
  EXPECT_GE(kinds, 5);
}

// Kernels that use other parts of the arena: neither finds anything of the other's.
TEST(MismatchedCallsTest, AnotherChoice) {
  std::set<std::string_view> transports;
  for (const int world : {2, 4}) {
    const auto kinds = OneOfEachKind({.collective = "ALL_REDUCE", .world_size = world});
    for (const KernelVariant* one : kinds) {
      for (const KernelVariant* other : kinds) {
        if (one == other) continue;
        ASSERT_NO_FATAL_FAILURE(ExpectKindsFail({one, other}, {.count = 70}, {.count = 70}));
        transports.insert(one->transport);
      }
    }
  }
  EXPECT_EQ(transports.size(), 5u);
}

// One rank leaves out a call of several: the next ones differ.
TEST(MismatchedCallsTest, ACallThatIsLeftOut) {
  for (const KernelVariant* v : OneOfEachKind({.world_size = 3})) {
    Call first(*v, {.count = 70});
    Call second(*v, {.count = 90});
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(kNever);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          if (rank != 1) first.Launch(ranks, rank);
          second.Launch(ranks, rank);
        },
        6));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kMismatch)
          << NameOf(*v) << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
