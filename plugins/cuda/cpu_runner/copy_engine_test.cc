// The copies of copy engines between barriers, against the reference evaluator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/cpu_runner/copy_engine_call.h"
#include "plugins/cuda/cpu_runner/sdk_problem.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::Collective;

// Threads of all ranks wait for each other in every call, which instrumented ones do slowly.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kMovingSeeds = 1;
constexpr uint64_t kAddingSeeds = 3;  // the misalignments
#else
constexpr uint64_t kMovingSeeds = 4;
constexpr uint64_t kAddingSeeds = 6;
#endif

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                       Collective::kBroadcast};

sdk::Problem ProblemOf(Collective collective, uint64_t count, int world_size, int root,
                       bool in_place) {
  sdk::Problem problem;
  problem.collective = collective;
  problem.type = sdk::ElementType::kU8;
  problem.count = count;
  problem.world_size = world_size;
  problem.root = root;
  problem.in_place = in_place;
  problem.is_symmetric = true;
  return problem;
}

TEST(CopyEngineTest, CopiesGiveWhatTheCollectiveMust) {
  for (const Collective collective : kCollectives) {
    for (const int world : {2, 3, 4, 5, 8}) {
      RanksOnCpu ranks(world);
      // The last fills all segments of two ranks.
      for (const uint64_t count : {0, 1, 511, 5001, 40'001}) {
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::kAllToAll) continue;
          for (uint64_t seed = 0; seed < kMovingSeeds; ++seed) {
            const int root = static_cast<int>(seed + count) % world;
            MovingCall call(ProblemOf(collective, count, world, root, in_place),
                            static_cast<unsigned int>(seed));
            ASSERT_TRUE(ranks.Run(
                [&](int rank) {
                  if (rank == static_cast<int>(seed) % world) RanksOnCpu::Delay(20'000);
                  call.Run(ranks, rank);
                },
                seed));
            ASSERT_EQ(call.Difference(), "");
          }
        }
      }
    }
  }
}

TEST(CopyEngineTest, SegmentsAreAddedUpBetweenCopies) {
  size_t kernels = 0;
  for (const KernelVariant& kernel : kCopyEngineVariants) {
    if (kernel.collective != "ALL_REDUCE") continue;
    ++kernels;
    RanksOnCpu ranks(kernel.world_size);
    // Nothing in blocks, hardly anything, some lines and a rest, no rest.
    for (const uint64_t count : {0, 1, 100, 5001, 16384}) {
      for (uint64_t seed = 0; seed < kAddingSeeds; ++seed) {
        const size_t misalignment = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 8 : 16;
        AddingCall first(kernel, count, misalignment, static_cast<unsigned int>(seed));
        AddingCall second(kernel, count, misalignment, static_cast<unsigned int>(seed) + 1);
        ASSERT_TRUE(ranks.Run(
            [&](int rank) {
              if (rank == static_cast<int>(seed) % kernel.world_size) RanksOnCpu::Delay(20'000);
              first.Run(ranks, rank);
              second.Run(ranks, rank);
            },
            seed));
        ASSERT_EQ(first.Difference(), "");
        ASSERT_EQ(second.Difference(), "");
      }
    }
  }
  EXPECT_EQ(kernels, 11u);
}

TEST(CopyEngineTest, SegmentsCoverAllButARestThatIsSmall) {
  for (const int world : {2, 3, 7, 8}) {
    sdk::Problem problem = ProblemOf(Collective::kAllReduce, 1'000'003, world, 0, false);
    std::vector<int> sums(problem.count);
    for (int rank = 0; rank < world; ++rank) {
      for (int segment = 0; segment < static_cast<int>(kCopySegments); ++segment) {
        const SegmentCopies copies = SegmentCopiesOf(problem, rank, segment);
        ASSERT_EQ(copies.scatter.size(), static_cast<size_t>(world - 1));
        ASSERT_EQ(copies.gather.size(), static_cast<size_t>(world - 1));
        for (size_t i = 0; i < copies.gather.size(); ++i) {
          const int from = (rank + 1 + static_cast<int>(i)) % world;
          EXPECT_EQ(copies.scatter[i].from_rank, from);
          EXPECT_EQ(copies.gather[i].from_rank, from);
          EXPECT_TRUE(copies.gather[i].is_from_recv && !copies.scatter[i].is_from_recv);
          // The addends that this rank takes there are of the sums that others gather from it.
          const SegmentCopies theirs = SegmentCopiesOf(problem, from, segment);
          const auto gathered =
              std::find_if(theirs.gather.begin(), theirs.gather.end(),
                           [&](const BufferCopy& c) { return c.from_rank == rank; });
          ASSERT_NE(gathered, theirs.gather.end());
          EXPECT_EQ(copies.scatter[i].from_offset_bytes, gathered->from_offset_bytes);
          EXPECT_EQ(copies.gather[i].to_offset_bytes, copies.gather[i].from_offset_bytes);
          for (uint64_t at = 0; at < copies.gather[i].bytes; ++at) {
            ++sums[copies.gather[i].to_offset_bytes + at];
          }
        }
      }
    }
    const uint64_t covered =
        kCopySegments * static_cast<uint64_t>(world) * CopyBlockBytes(problem.count, world);
    EXPECT_LT(problem.count - covered, kCopySegments * static_cast<uint64_t>(world) * 512 + 1);
    for (uint64_t at = 0; at < problem.count; ++at) {
      ASSERT_EQ(sums[at], at < covered ? world - 1 : 0) << at;
    }
  }
}

TEST(CopyEngineTest, EveryRankHasAsManyPhasesAndBeginsWithTheNextRank) {
  for (const Collective collective : kCollectives) {
    for (const int world : {2, 3, 8}) {
      const sdk::Problem problem = ProblemOf(collective, 100'000, world, 1, false);
      std::set<size_t> phases;
      for (int rank = 0; rank < world; ++rank) {
        const CopyList copies = CopiesOf(problem, rank);
        phases.insert(copies.phases.size());
        const auto expect_own = [&](const std::optional<BufferCopy>& own) {
          EXPECT_TRUE(!own || (own->from_rank == rank && !own->is_from_recv));
        };
        expect_own(copies.last_own);
        for (const auto& phase : copies.phases) {
          expect_own(phase.own);
          int before = 0;
          for (const BufferCopy& copy : phase.copies) {
            EXPECT_GT(copy.bytes, 0u);
            const int hop = (copy.from_rank - rank + world) % world;
            EXPECT_GE(hop, before);
            before = hop;
          }
        }
      }
      EXPECT_EQ(phases.size(), 1u);
    }
  }
}

// Kernels copy elements: what a rank copies for itself is whole ones, of any type.
TEST(CopyEngineTest, OwnCopiesAreWholeElements) {
  sdk::Problem problem = ProblemOf(Collective::kBroadcast, 262'157, 2, 0, false);
  problem.type = sdk::ElementType::kF64;
  uint64_t bytes = 0;
  const CopyList copies = CopiesOf(problem, 0);
  EXPECT_FALSE(copies.last_own.has_value());
  for (const CopyPhase& phase : copies.phases) {
    ASSERT_TRUE(phase.own.has_value());
    EXPECT_EQ(phase.own->to_offset_bytes, bytes);
    EXPECT_EQ(phase.own->from_offset_bytes % 8, 0u);
    EXPECT_EQ(phase.own->bytes % 8, 0u);
    bytes += phase.own->bytes;
  }
  EXPECT_EQ(bytes, 262'157u * 8);
}

// The list needs no more order than CopyPhase promises: each byte is written once, and read behind
// a wait that stands behind its writing.
TEST(CopyEngineTest, ABroadcastReadsWhatIsThere) {
  for (const bool in_place : {false, true}) {
    for (int world = 2; world <= 8; ++world) {
      for (const uint64_t count : {1, 512, 513, 3000, 40'001}) {
        const int root = static_cast<int>(count) % world;
        // For each byte of each receive buffer the wait behind which peers may read it.
        constexpr size_t kNever = SIZE_MAX;
        std::vector<std::vector<size_t>> there(static_cast<size_t>(world),
                                               std::vector<size_t>(count, kNever));
        std::vector<CopyList> lists;
        for (int rank = 0; rank < world; ++rank) {
          lists.push_back(
              CopiesOf(ProblemOf(Collective::kBroadcast, count, world, root, in_place), rank));
          ASSERT_EQ(lists.back().phases.size(), lists.front().phases.size());
        }
        if (in_place) there[static_cast<size_t>(root)].assign(count, 0);
        const auto write = [&](int rank, const BufferCopy& copy, size_t wait) {
          for (uint64_t at = copy.to_offset_bytes; at < copy.to_offset_bytes + copy.bytes; ++at) {
            ASSERT_EQ(there[static_cast<size_t>(rank)].at(at), kNever) << "written twice";
            there[static_cast<size_t>(rank)][at] = wait;
          }
        };
        for (int rank = 0; rank < world; ++rank) {
          const auto& phases = lists[static_cast<size_t>(rank)].phases;
          for (size_t p = 0; p < phases.size(); ++p) {
            if (phases[p].own) write(rank, *phases[p].own, p);
            size_t end = p + 1;
            while (end < phases.size() && !phases[end].ends_earlier_copies) ++end;
            for (const BufferCopy& copy : phases[p].copies) write(rank, copy, end);
          }
        }
        for (int rank = 0; rank < world; ++rank) {
          const auto& phases = lists[static_cast<size_t>(rank)].phases;
          for (size_t p = 0; p < phases.size(); ++p) {
            for (const BufferCopy& copy : phases[p].copies) {
              EXPECT_TRUE(copy.is_from_recv);
              EXPECT_EQ(copy.from_offset_bytes, copy.to_offset_bytes);
              const auto& from = there[static_cast<size_t>(copy.from_rank)];
              for (uint64_t i = 0; i < copy.bytes; ++i) {
                ASSERT_LE(from.at(copy.from_offset_bytes + i), p) << rank << " reads too early";
              }
            }
          }
          for (const size_t wait : there[static_cast<size_t>(rank)]) ASSERT_NE(wait, kNever);
        }
      }
    }
  }
}

// The root fills its receive buffer twice as fast as a peer reads it, or faster: a segment that is
// more than twice as large as the one before would come late.
TEST(CopyEngineTest, SegmentsOfABroadcastDouble) {
  for (const uint64_t count : {uint64_t{512} << 20, uint64_t{1'000'003}}) {
    const CopyList copies = CopiesOf(ProblemOf(Collective::kBroadcast, count, 2, 0, false), 0);
    ASSERT_EQ(copies.phases.size(), 6u);
    EXPECT_LE(copies.phases[0].own->bytes, count / 63 + 512);
    for (size_t s = 1; s < copies.phases.size(); ++s) {
      EXPECT_LE(copies.phases[s].own->bytes, 2 * copies.phases[s - 1].own->bytes) << s;
      EXPECT_FALSE(copies.phases[s].ends_earlier_copies);
    }
  }
}

// There are not bytes for each segment, or none at all.
TEST(CopyEngineTest, ASmallBroadcastHasFewerCopies) {
  for (const uint64_t count : {0, 1, 512, 513, 1536, 1537}) {
    for (const int world : {2, 3}) {
      const sdk::Problem problem = ProblemOf(Collective::kBroadcast, count, world, 0, false);
      uint64_t bytes = 0;
      const CopyList root = CopiesOf(problem, 0);
      for (const CopyPhase& phase : root.phases) {
        if (phase.own) bytes += phase.own->bytes;
      }
      EXPECT_EQ(bytes, count);
      EXPECT_EQ(CopiesOf(problem, 1).phases.size(), root.phases.size());
    }
  }
}

// No rank of a broadcast is asked for more than the data.
TEST(CopyEngineTest, ABroadcastIsSharedByAll) {
  for (const bool in_place : {false, true}) {
    const sdk::Problem problem = ProblemOf(Collective::kBroadcast, 7 << 20, 8, 3, in_place);
    std::vector<uint64_t> read_from(8, 0);
    for (int rank = 0; rank < 8; ++rank) {
      for (const auto& phase : CopiesOf(problem, rank).phases) {
        for (const BufferCopy& copy : phase.copies) {
          read_from[static_cast<size_t>(copy.from_rank)] += copy.bytes;
        }
      }
    }
    for (size_t rank = 0; rank < 8; ++rank) {
      // Shares are whole lines, so they differ a little.
      const uint64_t bytes = rank == 3 ? 7u << 20 : 6u << 20;
      EXPECT_LE(read_from[rank], bytes + 8192) << rank;
      EXPECT_GE(read_from[rank] + 65536, bytes) << rank;
    }
  }
}

// The peers run the whole call while one rank has not come to it: they give up, and nothing of that
// rank has been touched.
TEST(CopyEngineTest, CopiesLeaveTheBuffersOfALateRankAlone) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "behind a barrier that gave up nothing orders the copies, which is the case here";
#endif
  for (const Collective collective : kCollectives) {
    for (const int world : {2, 3}) {
      for (int late = 0; late < world; ++late) {
        RanksOnCpu ranks(world);
        ranks.set_timeout_ns(100'000);
        MovingCall call(ProblemOf(collective, 5001, world, 0, false), 3);
        ASSERT_TRUE(ranks.Run(
            [&](int rank) {
              if (rank != late) call.Run(ranks, rank);
            },
            7));
        EXPECT_TRUE(call.IsUntouchedBefore(late)) << WordOf(collective) << " late " << late;
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(ranks.HasFailed(rank), rank != late);
        }
      }
    }
  }
}

TEST(CopyEngineTest, ABarrierNamesWhoDoesNotCome) {
  for (const int world : {2, 4, 8}) {
    RanksOnCpu ranks(world);
    ranks.set_timeout_ns(100'000);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          CopyBarrier(ranks, rank);
          if (rank != 1) CopyBarrier(ranks, rank);
        },
        5));
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(ranks.failure(rank).is_set, rank == 1 ? 0u : 1u);
      if (rank == 1) continue;
      EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kTimeout);
      EXPECT_EQ(PoisonPeer(ranks.failure(rank).poison), 1);
    }
  }
}

TEST(CopyEngineTest, ABarrierEndsWhenTheHostAborts) {
  RanksOnCpu ranks(3);
  ranks.set_timeout_ns(50'000'000);
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        if (rank != 2) return CopyBarrier(ranks, rank);
        RanksOnCpu::Delay(100'000);
        for (int r = 0; r < 2; ++r) ranks.Abort(r);
      },
      6));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kAborted);
}

}  // namespace
}  // namespace cotune::cuda::cpu
