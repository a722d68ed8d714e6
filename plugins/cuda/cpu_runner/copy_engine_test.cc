// The copies of copy engines between barriers, against the reference evaluator: copies are done as
// a stream does them, one after the other on each rank, that of a rank to itself at any time, and
// all that orders them on different ranks are barriers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/cpu_runner/exact_data.h"
#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::Collective;

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                       Collective::kBroadcast};

std::string_view WordOf(Collective collective) {
  if (collective == Collective::kAllGather) return "ALL_GATHER";
  return collective == Collective::kAllToAll ? "ALL_TO_ALL" : "BROADCAST";
}

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

const KernelVariant& KernelOf(int world_size) {
  for (const KernelVariant& v : kCopyEngineVariants) {
    if (v.collective != "ALL_REDUCE" && v.world_size == world_size) return v;
  }
  std::abort();
}

void Barrier(RanksOnCpu& ranks, int rank) {
  KernelArguments call{};
  call.segment = -1;
  ranks.Launch(rank, KernelOf(ranks.world_size()).function, call, {.blocks = 1, .threads = 8});
}

// The buffers of all ranks, used as Plan does.
class Call {
 public:
  Call(const sdk::Problem& problem, unsigned int salt)
      : problem_(problem), salt_(salt), call_{WordOf(problem.collective),
                                              "U8",
                                              "",
                                              problem.count,
                                              problem.world_size,
                                              problem.root} {
    for (int rank = 0; rank < problem.world_size; ++rank) {
      inputs_.push_back(ExactInput(call_, rank, salt));
      received_.push_back(Bytes(ReceiveElements(call_), 0xEE));
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
    if (copies.own[0]) CopyHere(ranks, rank, *copies.own[0]);
    Barrier(ranks, rank);
    for (size_t phase = 0; phase < copies.phases.size(); ++phase) {
      const auto& own = copies.own[phase + 1];
      // The own copy runs beside the others: before, between or after them.
      size_t own_at = (salt_ + r) % (copies.phases[phase].size() + 1);
      for (const BufferCopy& copy : copies.phases[phase]) {
        if (own_at-- == 0 && own) CopyHere(ranks, rank, *own);
        FiberScheduler::YieldSometimes();
        Copy(r, copy);
      }
      if (own_at == 0 && own) CopyHere(ranks, rank, *own);
      Barrier(ranks, rank);
    }
    // The caller has its buffers back.
    results_[r] = received_[r];
    std::fill(sent_[r].begin(), sent_[r].end(), 0xDD);
    std::fill(received_[r].begin(), received_[r].end(), 0xEE);
  }

  // True when no byte of the rank's buffers has changed, as before it runs. The buffers are not the
  // same ones.
  bool IsUntouchedAt(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return sent_[r] == inputs_[r] && received_[r] == Bytes(received_[r].size(), 0xEE);
  }

  void Check() const {
    for (int rank = 0; rank < problem_.world_size; ++rank) {
      const Bytes expected = ExpectedOutput(call_, rank, inputs_);
      ASSERT_EQ(results_[static_cast<size_t>(rank)], expected)
          << call_.collective << " count " << problem_.count << " rank " << rank << " of "
          << problem_.world_size << (problem_.in_place ? " in place" : "");
      const Bytes later(received_[static_cast<size_t>(rank)].size(), 0xEE);
      ASSERT_EQ(received_[static_cast<size_t>(rank)], later) << "written after its end";
    }
  }

 private:
  // A kernel copies the data that stays on this rank; never in place.
  void CopyHere(RanksOnCpu& ranks, int rank, const BufferCopy& copy) {
    const auto r = static_cast<size_t>(rank);
    KernelArguments call{};
    call.send = sent_[r].data() + copy.from_offset_bytes;
    call.recv = received_[r].data() + copy.to_offset_bytes;
    call.count = copy.bytes;
    ranks.Launch(rank, KernelOf(ranks.world_size()).function, call, {.blocks = 3, .threads = 32});
  }

  void Copy(size_t rank, const BufferCopy& copy) {
    const auto peer = static_cast<size_t>(copy.from_rank);
    const Bytes& from = (copy.is_from_recv ? received_ : sent_)[peer];
    Bytes& to = received_[rank];
    ASSERT_NE(peer, rank);
    ASSERT_LE(copy.from_offset_bytes + copy.bytes, from.size());
    ASSERT_LE(copy.to_offset_bytes + copy.bytes, to.size());
    std::memcpy(to.data() + copy.to_offset_bytes, from.data() + copy.from_offset_bytes, copy.bytes);
  }

  sdk::Problem problem_;
  unsigned int salt_;
  Problem call_;
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

// all_reduce in segments, used as Plan does. What runs beside an adding up runs before it or after
// it, by rank: in between it meets the same bytes.
class AddingCall {
 public:
  AddingCall(const KernelVariant& kernel, uint64_t count, size_t misalignment, unsigned int salt)
      : kernel_(kernel),
        call_{kernel.collective, kernel.type, kernel.reduction, count, kernel.world_size},
        misalignment_(misalignment),
        salt_(salt) {
    problem_.collective = Collective::kAllReduce;
    problem_.type = kernel.type == "F32"    ? sdk::ElementType::kF32
                    : kernel.type == "BF16" ? sdk::ElementType::kBf16
                    : kernel.type == "I64"  ? sdk::ElementType::kI64
                                            : sdk::ElementType::kU8;
    problem_.count = count;
    problem_.world_size = kernel.world_size;
    problem_.is_symmetric = true;
    for (int rank = 0; rank < kernel.world_size; ++rank) {
      inputs_.push_back(ExactInput(call_, rank, salt));
      sent_.push_back(Bytes(misalignment, 0x11));
      sent_.back().insert(sent_.back().end(), inputs_.back().begin(), inputs_.back().end());
      received_.push_back(Bytes(sent_.back().size() + kGuardBytes, 0xEE));
    }
    results_.resize(inputs_.size());
  }

  // From a program.
  void Run(RanksOnCpu& ranks, int rank) {
    Launch(ranks, rank, -1);
    CopyAll(rank, SegmentCopiesOf(problem_, rank, 0).scatter);
    constexpr int kSegments = kCopySegments;
    for (int segment = 0; segment < kSegments; ++segment) {
      const bool is_last = segment + 1 == kSegments;
      const SegmentCopies beside = SegmentCopiesOf(problem_, rank, is_last ? 0 : segment + 1);
      const bool copies_first = ((salt_ + static_cast<unsigned int>(rank)) & 1) != 0;
      const auto& copies = is_last ? beside.gather : beside.scatter;
      if (copies_first) CopyAll(rank, copies);
      Launch(ranks, rank, segment);
      if (!copies_first) CopyAll(rank, copies);
    }
    for (int segment = 1; segment < kSegments; ++segment) {
      CopyAll(rank, SegmentCopiesOf(problem_, rank, segment).gather);
    }
    Launch(ranks, rank, -1);
    // The caller has its buffers back.
    const auto r = static_cast<size_t>(rank);
    results_[r] = received_[r];
    std::fill(sent_[r].begin(), sent_[r].end(), 0xDD);
    std::fill(received_[r].begin(), received_[r].end(), 0xEE);
  }

  void Check() const {
    for (int rank = 0; rank < call_.world_size; ++rank) {
      const auto r = static_cast<size_t>(rank);
      Bytes expected(misalignment_, 0xEE);
      const Bytes sums = ExpectedOutput(call_, rank, inputs_);
      expected.insert(expected.end(), sums.begin(), sums.end());
      expected.insert(expected.end(), kGuardBytes, 0xEE);
      ASSERT_EQ(results_[r], expected) << kernel_.type << " count " << call_.count << " rank "
                                       << rank << " of " << call_.world_size;
      ASSERT_EQ(received_[r], Bytes(received_[r].size(), 0xEE)) << "written after its end";
    }
  }

 private:
  static constexpr size_t kGuardBytes = 64;

  void Launch(RanksOnCpu& ranks, int rank, int segment) {
    KernelArguments call{};
    const auto at = [&](std::vector<Bytes>& buffers, size_t r) {
      return buffers[r].data() + misalignment_;
    };
    call.send = at(sent_, static_cast<size_t>(rank));
    call.recv = at(received_, static_cast<size_t>(rank));
    call.count = call_.count;
    call.segment = segment;
    for (size_t r = 0; r < sent_.size(); ++r) {
      call.peer_send[r] = at(sent_, r);
      call.peer_recv[r] = at(received_, r);
    }
    const unsigned int blocks = segment < 0 ? 1 : 3;
    ranks.Launch(rank, kernel_.function, call, {.blocks = blocks, .threads = 32});
  }

  void CopyAll(int rank, const std::vector<BufferCopy>& copies) {
    for (const BufferCopy& copy : copies) {
      FiberScheduler::YieldSometimes();
      const auto peer = static_cast<size_t>(copy.from_rank);
      const Bytes& from = (copy.is_from_recv ? received_ : sent_)[peer];
      Bytes& to = received_[static_cast<size_t>(rank)];
      ASSERT_LE(misalignment_ + copy.to_offset_bytes + copy.bytes, to.size() - kGuardBytes);
      std::memcpy(to.data() + misalignment_ + copy.to_offset_bytes,
                  from.data() + misalignment_ + copy.from_offset_bytes, copy.bytes);
    }
  }

  const KernelVariant& kernel_;
  Problem call_;
  size_t misalignment_;
  unsigned int salt_;
  sdk::Problem problem_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
};

TEST(CopyEngineTest, SegmentsAreAddedUpBetweenCopies) {
  size_t kernels = 0;
  for (const KernelVariant& kernel : kCopyEngineVariants) {
    if (kernel.collective != "ALL_REDUCE") continue;
    ++kernels;
    RanksOnCpu ranks(kernel.world_size);
    // Nothing in blocks, hardly anything, some lines and a rest, no rest.
    for (const uint64_t count : {0, 1, 100, 5001, 16384}) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
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
        ASSERT_NO_FATAL_FAILURE(first.Check());
        ASSERT_NO_FATAL_FAILURE(second.Check());
      }
    }
  }
  EXPECT_EQ(kernels, 8u);
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
        ASSERT_EQ(copies.own.size(), copies.phases.size() + 1);
        for (const auto& own : copies.own) {
          EXPECT_TRUE(!own || (own->from_rank == rank && !own->is_from_recv));
        }
        for (const auto& phase : copies.phases) {
          int before = 0;
          for (const BufferCopy& copy : phase) {
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
  for (const auto& own : CopiesOf(problem, 0).own) {
    if (!own) continue;
    EXPECT_EQ(own->to_offset_bytes, bytes);
    EXPECT_EQ(own->from_offset_bytes % 8, 0u);
    EXPECT_EQ(own->bytes % 8, 0u);
    bytes += own->bytes;
  }
  EXPECT_EQ(bytes, 262'157u * 8);
}

// No rank of a broadcast is asked for more than the data.
TEST(CopyEngineTest, ABroadcastIsSharedByAll) {
  for (const bool in_place : {false, true}) {
    const sdk::Problem problem = ProblemOf(Collective::kBroadcast, 7 << 20, 8, 3, in_place);
    std::vector<uint64_t> read_from(8, 0);
    for (int rank = 0; rank < 8; ++rank) {
      for (const auto& phase : CopiesOf(problem, rank).phases) {
        for (const BufferCopy& copy : phase) {
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
        Call call(ProblemOf(collective, 5001, world, 0, false), 3);
        ASSERT_TRUE(ranks.Run(
            [&](int rank) {
              if (rank != late) call.Run(ranks, rank);
            },
            7));
        EXPECT_TRUE(call.IsUntouchedAt(late)) << WordOf(collective) << " late " << late;
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
          Barrier(ranks, rank);
          if (rank != 1) Barrier(ranks, rank);
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
        if (rank != 2) return Barrier(ranks, rank);
        RanksOnCpu::Delay(100'000);
        for (int r = 0; r < 2; ++r) ranks.Abort(r);
      },
      6));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kAborted);
}

}  // namespace
}  // namespace cotune::cuda::cpu
