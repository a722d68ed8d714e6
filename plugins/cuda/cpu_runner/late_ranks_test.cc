// A rank that comes late, or never, while several calls are in flight: no rank takes wrong data for
// right, all hear of it, and what is queued does not wait once for each call.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"

namespace cotune::cuda::cpu {
namespace {

// The timeout on the runner's clock is several times what the calls of these tests take when no
// rank is late.
constexpr uint64_t kTimeoutNs = 400'000;

struct Schedule {
  int late_rank = 0;
  size_t late_at = 0;  // the call that it comes late to
  uint64_t delay_ns = 0;
  uint64_t seed = 1;
  Threads threads = Threads::kOneForAll;
};

using Calls = std::vector<std::unique_ptr<Call>>;

// Calls of one kernel with data of their own each.
Calls CallsOf(const KernelVariant& variant, unsigned int calls) {
  Calls made;
  for (unsigned int i = 0; i < calls; ++i) {
    const CallShape shape{.count = 70, .blocks = 2, .resident_blocks = 1, .salt = i + 1};
    made.push_back(std::make_unique<Call>(variant, shape));
  }
  return made;
}

// Every rank makes all calls, as a stream or a graph does that nobody looks at in between. Returns
// for each rank how many of them had ended without a failure of that rank.
std::vector<size_t> MakeCalls(RanksOnCpu& ranks, const Calls& calls, const Schedule& schedule) {
  std::vector<size_t> succeeded(static_cast<size_t>(ranks.world_size()), 0);
  const bool ended = ranks.Run(
      [&](int rank) {
        for (size_t i = 0; i < calls.size(); ++i) {
          if (rank == schedule.late_rank && i == schedule.late_at) {
            RanksOnCpu::Delay(schedule.delay_ns);
          }
          calls[i]->Launch(ranks, rank);
          if (!ranks.HasFailed(rank)) ++succeeded[static_cast<size_t>(rank)];
        }
      },
      schedule.seed, schedule.threads);
  EXPECT_TRUE(ended);
  return succeeded;
}

void ExpectRightWhereSucceeded(const Calls& calls, const std::vector<size_t>& succeeded) {
  for (size_t rank = 0; rank < succeeded.size(); ++rank) {
    for (size_t i = 0; i < succeeded[rank]; ++i) {
      ASSERT_EQ(calls[i]->DifferenceAt(static_cast<int>(rank)), "") << "call " << i;
    }
  }
}

TEST(LateRanksTest, NoCallSucceedsWithWrongData) {
  int with_failure = 0;
  for (const int world : {2, 3}) {
    for (const KernelVariant* variant : OneOfEachKind({.world_size = world})) {
      for (uint64_t seed = 1; seed <= 12; ++seed) {
        const Schedule schedule{.late_rank = static_cast<int>(seed) % world,
                                .late_at = seed / 4 % 3,
                                .delay_ns = kTimeoutNs / 2 * (1 + 2 * (seed % 3)),
                                .seed = seed};
        RanksOnCpu ranks(world);
        ranks.set_timeout_ns(kTimeoutNs);
        const Calls calls = CallsOf(*variant, 4);
        const std::vector<size_t> succeeded = MakeCalls(ranks, calls, schedule);
        const std::string where = NameOf(*variant) + " seed " + std::to_string(seed);
        ASSERT_NO_FATAL_FAILURE(ExpectRightWhereSucceeded(calls, succeeded)) << where;
        const bool is_too_late = schedule.delay_ns > kTimeoutNs;
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(ranks.HasFailed(rank), is_too_late) << where << " rank " << rank;
          if (!ranks.HasFailed(rank)) continue;
          EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kTimeout) << where << " rank " << rank;
          ++with_failure;
        }
      }
    }
  }
  EXPECT_GT(with_failure, 0);
}

TEST(LateRanksTest, NoCallSucceedsWithWrongDataOnRealThreads) {
  for (const KernelVariant* variant : OneOfEachKind({.world_size = 3})) {
#ifdef __SANITIZE_THREAD__
    // These read the buffers of peers. A peer that gave up may write into its buffer meanwhile; the
    // kernel notices that afterwards and fails, but TSan reports the read.
    if (variant->transport == "ZERO_COPY") continue;
#endif
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      RanksOnCpu ranks(3);
      ranks.set_timeout_ns(kTimeoutNs);
      const Calls calls = CallsOf(*variant, 4);
      const Schedule schedule{.late_rank = static_cast<int>(seed) % 3,
                              .late_at = 1,
                              .delay_ns = kTimeoutNs * seed,
                              .seed = seed,
                              .threads = Threads::kOneForEach};
      const std::vector<size_t> succeeded = MakeCalls(ranks, calls, schedule);
      ASSERT_NO_FATAL_FAILURE(ExpectRightWhereSucceeded(calls, succeeded)) << NameOf(*variant);
    }
  }
}

// The late rank finds the data of its call, and hears all the same that the others have given up
// when it comes to the next one.
TEST(LateRanksTest, EveryRankNamesTheLateOne) {
  for (const KernelVariant* variant : OneOfEachKind({.world_size = 3})) {
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(kTimeoutNs);
    const Calls calls = CallsOf(*variant, 3);
    MakeCalls(ranks, calls, {.late_rank = 1, .late_at = 0, .delay_ns = 3 * kTimeoutNs, .seed = 3});
    for (int rank = 0; rank < 3; ++rank) {
      const FailureRecord& failure = ranks.failure(rank);
      ASSERT_EQ(failure.is_set, 1u) << NameOf(*variant) << " rank " << rank;
      EXPECT_NE(PoisonReporter(failure.poison), 1) << NameOf(*variant) << " rank " << rank;
      EXPECT_EQ(PoisonPeer(failure.poison), 1) << NameOf(*variant) << " rank " << rank;
      EXPECT_EQ(failure.own_call.word[1], calls[0]->Record().word[1]);
    }
  }
}

TEST(LateRanksTest, QueuedCallsEndInOneTimeout) {
  for (const KernelVariant* variant : OneOfEachKind({.world_size = 3})) {
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(kTimeoutNs);
    const Calls calls = CallsOf(*variant, 20);
    std::vector<uint64_t> took_ns(3, 0);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          const uint64_t begin_ns = FiberScheduler::NowNs();
          for (const auto& call : calls) {
            if (rank != 2) call->Launch(ranks, rank);
          }
          took_ns[static_cast<size_t>(rank)] = FiberScheduler::NowNs() - begin_ns;
        },
        4));
    EXPECT_LT(std::max(took_ns[0], took_ns[1]), 2 * kTimeoutNs) << NameOf(*variant);
  }
}

// The group fails while the threads of a launch begin, so that some of them see it and others do
// not: what the others send must not be taken for all of the data.
TEST(LateRanksTest, AFailureThatSomeThreadsOfALaunchSeeIsSeenByAll) {
  int seen_at_begin = 0;
  for (const KernelVariant* variant : OneOfEachKind({.world_size = 3})) {
#ifdef __SANITIZE_THREAD__
    // As above: a peer writes into the buffers of a rank that has given up.
    if (variant->transport == "ZERO_COPY") continue;
#endif
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      RanksOnCpu ranks(3);
      ranks.set_timeout_ns(1ull << 50);
      const Calls calls = CallsOf(*variant, 1);
      const int late = static_cast<int>(seed) % 3;
      std::vector<size_t> succeeded(3, 0);
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            if (rank == late) {
              RanksOnCpu::Delay(kTimeoutNs / 8);
              ranks.Abort((late + 1) % 3);
              RanksOnCpu::Delay(kTimeoutNs / 4000 * (seed / 3));
            }
            calls[0]->Launch(ranks, rank);
            if (!ranks.HasFailed(rank)) ++succeeded[static_cast<size_t>(rank)];
          },
          seed));
      const std::string where = NameOf(*variant) + " seed " + std::to_string(seed);
      ASSERT_NO_FATAL_FAILURE(ExpectRightWhereSucceeded(calls, succeeded)) << where;
      if (ranks.HasFailed(late)) ++seen_at_begin;
    }
  }
  EXPECT_GT(seen_at_begin, 0);
}

// Aborted on one rank while no rank waits for it: the peers leave as soon as it does.
TEST(LateRanksTest, AnAbortReachesThePeers) {
  for (const KernelVariant* variant : OneOfEachKind({.world_size = 3})) {
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(1ull << 50);
    const Calls calls = CallsOf(*variant, 3);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          if (rank == 2) {
            RanksOnCpu::Delay(kTimeoutNs);
            ranks.Abort(0);
            return;
          }
          for (const auto& call : calls) call->Launch(ranks, rank);
        },
        5));
    for (int rank = 0; rank < 2; ++rank) {
      const unsigned int poison = ranks.failure(rank).poison;
      EXPECT_EQ(PoisonKind(poison), kAborted) << NameOf(*variant) << " rank " << rank;
      EXPECT_EQ(PoisonReporter(poison), 0) << NameOf(*variant) << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
