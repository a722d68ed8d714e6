// The copies of copy engines between barriers, against plain loops: copies are done as a stream
// does them, one after the other on each rank, that of a rank to itself at any time, and all that
// orders them on different ranks are barriers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "plugins/cuda/copy_list.h"
#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/naive_collective_for_test.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {
namespace {

using border::Collective;

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                       Collective::kBroadcast};

std::string_view WordOf(Collective collective) {
  if (collective == Collective::kAllGather) return "ALL_GATHER";
  return collective == Collective::kAllToAll ? "ALL_TO_ALL" : "BROADCAST";
}

border::Problem ProblemOf(Collective collective, uint64_t count, int world_size, int root,
                          bool in_place) {
  border::Problem problem;
  problem.collective = collective;
  problem.type = border::ElementType::kU8;
  problem.count = count;
  problem.world_size = world_size;
  problem.root = root;
  problem.in_place = in_place;
  problem.is_symmetric = true;
  return problem;
}

const KernelVariant& BarrierOf(int world_size) {
  for (const KernelVariant& v : kBarrierVariants) {
    if (v.world_size == world_size) return v;
  }
  std::abort();
}

void Barrier(RanksOnCpu& ranks, int rank) {
  ranks.Launch(rank, BarrierOf(ranks.world_size()).function, {}, {.blocks = 1, .threads = 8});
}

// The buffers of all ranks, used as Plan does.
class Call {
 public:
  Call(const border::Problem& problem, unsigned int salt)
      : problem_(problem), salt_(salt), naive_{WordOf(problem.collective),
                                               "U8",
                                               "",
                                               problem.count,
                                               problem.world_size,
                                               problem.root} {
    for (int rank = 0; rank < problem.world_size; ++rank) {
      inputs_.push_back(ExactInput(naive_, rank, salt));
      received_.push_back(Bytes(ReceiveElements(naive_), 0xEE));
    }
    sent_ = inputs_;
    results_.resize(inputs_.size());
    if (!problem.in_place) return;
    for (size_t r = 0; r < inputs_.size(); ++r) {
      const size_t at = problem.collective == Collective::kAllGather ? r * problem.count : 0;
      if (at == 0 && problem.collective == Collective::kBroadcast &&
          static_cast<int>(r) != problem.root) {
        continue;
      }
      // Not memcpy: with no elements these point nowhere.
      std::copy(inputs_[r].begin(), inputs_[r].end(),
                received_[r].begin() + static_cast<ptrdiff_t>(at));
    }
  }

  // From a program.
  void Run(RanksOnCpu& ranks, int rank) {
    const auto r = static_cast<size_t>(rank);
    const CopyList copies = CopiesOf(problem_, rank);
    // The own copy may run at any time from here to the end: `own_at` barriers later.
    const auto barriers = static_cast<unsigned int>(copies.phases.size()) + 1;
    unsigned int own_at = (salt_ + static_cast<unsigned int>(rank)) % (barriers + 1);
    const auto pass_barrier = [&] {
      if (own_at-- == 0 && copies.own) Copy(r, *copies.own);
      Barrier(ranks, rank);
    };
    pass_barrier();
    for (const auto& phase : copies.phases) {
      for (const BufferCopy& copy : phase) {
        FiberScheduler::YieldSometimes();
        Copy(r, copy);
      }
      pass_barrier();
    }
    if (own_at == 0 && copies.own) Copy(r, *copies.own);
    // The caller has its buffers back.
    results_[r] = received_[r];
    std::fill(sent_[r].begin(), sent_[r].end(), 0xDD);
    std::fill(received_[r].begin(), received_[r].end(), 0xEE);
  }

  void Check() const {
    for (int rank = 0; rank < problem_.world_size; ++rank) {
      const Bytes expected = ExpectedOutput(naive_, rank, inputs_);
      ASSERT_EQ(results_[static_cast<size_t>(rank)], expected)
          << naive_.collective << " count " << problem_.count << " rank " << rank << " of "
          << problem_.world_size << (problem_.in_place ? " in place" : "");
      const Bytes later(received_[static_cast<size_t>(rank)].size(), 0xEE);
      ASSERT_EQ(received_[static_cast<size_t>(rank)], later) << "written after its end";
    }
  }

 private:
  void Copy(size_t rank, const BufferCopy& copy) {
    Bytes& to = received_[static_cast<size_t>(copy.to_rank)];
    // In place the send buffer is a part of the receive buffer.
    const bool is_gather = problem_.collective == Collective::kAllGather;
    const size_t in_place_begin = is_gather ? rank * problem_.count : 0;
    const bool is_from_recv = copy.is_from_recv || problem_.in_place;
    const Bytes& from = is_from_recv ? received_[rank] : sent_[rank];
    const size_t begin =
        copy.from_offset_bytes + (problem_.in_place && !copy.is_from_recv ? in_place_begin : 0);
    ASSERT_LE(begin + copy.bytes, from.size());
    ASSERT_LE(copy.to_offset_bytes + copy.bytes, to.size());
    std::memcpy(to.data() + copy.to_offset_bytes, from.data() + begin, copy.bytes);
  }

  border::Problem problem_;
  unsigned int salt_;
  Problem naive_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
};

TEST(CopyEngineTest, CopiesGiveWhatTheCollectiveMust) {
  for (const Collective collective : kCollectives) {
    for (const int world : {2, 3, 4, 5, 8}) {
      RanksOnCpu ranks(world);
      for (const uint64_t count : {0, 1, 511, 5001}) {
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::kAllToAll) continue;
          for (uint64_t seed = 0; seed < 4; ++seed) {
            const int root = static_cast<int>(seed + count) % world;
            Call call(ProblemOf(collective, count, world, root, in_place),
                      static_cast<unsigned int>(seed));
            ASSERT_TRUE(ranks.Run(
                [&](int rank) {
                  if (rank == static_cast<int>(seed) % world) RanksOnCpu::Delay(20'000);
                  call.Run(ranks, rank);
                },
                seed));
            ASSERT_NO_FATAL_FAILURE(call.Check());
          }
        }
      }
    }
  }
}

TEST(CopyEngineTest, EveryRankHasAsManyPhasesAndBeginsWithTheNextRank) {
  for (const Collective collective : kCollectives) {
    for (const int world : {2, 3, 8}) {
      const border::Problem problem = ProblemOf(collective, 100'000, world, 1, false);
      std::set<size_t> phases;
      for (int rank = 0; rank < world; ++rank) {
        const CopyList copies = CopiesOf(problem, rank);
        phases.insert(copies.phases.size());
        EXPECT_EQ(copies.own.value_or(BufferCopy{.to_rank = rank}).to_rank, rank);
        for (const auto& phase : copies.phases) {
          int before = 0;
          for (const BufferCopy& copy : phase) {
            EXPECT_GT(copy.bytes, 0u);
            const int hop = (copy.to_rank - rank + world) % world;
            EXPECT_GT(hop, before);
            before = hop;
          }
        }
      }
      EXPECT_EQ(phases.size(), 1u);
    }
  }
}

// No rank of a broadcast sends more than the data.
TEST(CopyEngineTest, ABroadcastIsSharedByAll) {
  const border::Problem problem = ProblemOf(Collective::kBroadcast, 7 << 20, 8, 3, true);
  for (int rank = 0; rank < 8; ++rank) {
    uint64_t bytes = 0;
    for (const auto& phase : CopiesOf(problem, rank).phases) {
      for (const BufferCopy& copy : phase) bytes += copy.bytes;
    }
    EXPECT_EQ(bytes, rank == 3 ? 7u << 20 : 6u << 20) << rank;
  }
}

TEST(CopyEngineTest, ABarrierNamesWhoDoesNotCome) {
  for (const int world : {2, 4, 8}) {
    RanksOnCpu ranks(world);
    ranks.set_timeout_ns(100'000);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          Barrier(ranks, rank);
          if (rank != 1) Barrier(ranks, rank);
        },
        5));
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(ranks.failure(rank).is_set, rank == 1 ? 0u : 1u);
      if (rank == 1) continue;
      EXPECT_EQ(ranks.failure(rank).kind, kTimeout);
      EXPECT_EQ(ranks.failure(rank).peer, 1);
    }
  }
}

TEST(CopyEngineTest, ABarrierEndsWhenTheHostAborts) {
  RanksOnCpu ranks(3);
  ranks.set_timeout_ns(50'000'000);
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        if (rank != 2) return Barrier(ranks, rank);
        RanksOnCpu::Delay(100'000);
        for (int r = 0; r < 2; ++r) ranks.Abort(r);
      },
      6));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.failure(rank).kind, kAborted);
}

}  // namespace
}  // namespace cotune::cuda::cpu
