// all_reduce in two exchanges, in chunks with flags (all_reduce_two_shot_flagged.cu), with
// elementwise operations before and after it: every rank adds up its share of the computed operands
// and pushes the sum to every peer. Each rank runs the operations that follow on all leaves of the
// sum. The same thread loads and stores all elements of a leaf, so that an output may overwrite an
// input.
#include "flagged.cuh"
#include "leaf_region.cuh"

using namespace cotune::cuda;

namespace {

// Leaves of a thread in flight; a leaf of several packs takes the registers of several.
constexpr int kLeavesAtOnce = COTUNE_UNROLL > kLeafPacks ? COTUNE_UNROLL / kLeafPacks : 1;
// Peers whose packs are in flight together, and packs of a leaf that are added up together.
constexpr int kPacksInFlightMax = 8;
constexpr int kPacksOfPeer = kLeavesAtOnce * kLeafPacks;
constexpr int kPeersThatFit =
    kPacksOfPeer < kPacksInFlightMax ? kPacksInFlightMax / kPacksOfPeer : 1;
constexpr int kPeersAtOnce = kPeersThatFit < kPeers ? kPeersThatFit : kPeers;
constexpr int kPacksOfLeafAtOnce = kPacksOfPeer * kPeers <= 2 * kPacksInFlightMax ? kLeafPacks : 1;

// The shares of the ranks, in leaves, and the chunks of a share. The packs of a chunk are whole
// leaves, because chunks are a multiple of 32 packs.
struct LeafChunks {
  unsigned long long leaves;
  unsigned long long share;
  Chunks chunks;

  __device__ __forceinline__ LeafChunks(unsigned long long elements, int chunk_bytes)
      : leaves((elements + kLeafColumns - 1) / kLeafColumns),
        share((leaves + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE),
        chunks(share * kLeafPacks, chunk_bytes) {}

  __device__ __forceinline__ unsigned long long First(int owner, unsigned int c) const {
    return owner * share + chunks.Begin(c) / kLeafPacks;
  }
  // Leaves of the chunk in the share of `owner`: the shares at the end may be short.
  __device__ __forceinline__ unsigned int SizeOf(int owner, unsigned int c) const {
    const unsigned long long begin = owner * share;
    if (begin >= leaves) return 0;
    const unsigned long long left = leaves - begin < share ? leaves - begin : share;
    return chunks.SizeIn(left * kLeafPacks, c) / kLeafPacks;
  }
  __device__ __forceinline__ unsigned int Size(unsigned int c) const {
    return chunks.Size(c) / kLeafPacks;
  }
  // Pack p of leaf i in the slot of a chunk. Packs of one number lie one after another, so that
  // stores of a warp do.
  __device__ __forceinline__ unsigned int At(unsigned int c, unsigned int i, int p) const {
    return (static_cast<unsigned int>(p) * Size(c) + i) * kPackBytes;
  }
};

// A thread reads and writes several of the callers' leaves at a time if all of a chunk are aligned
// and full. If a branch for each leaf decided that, loads would wait for one another.
struct WholeLeaves : FullLeaf {
  static constexpr int kAtOnce = kLeavesAtOnce;
};
struct AnyLeaves : AnyLeaf {
  static constexpr int kAtOnce = 1;
};

// body(i, u): leaf i of a chunk, and its place among those that the thread has in flight.
template <typename Access, typename Body>
__device__ __forceinline__ void ForLeavesAt(Access, unsigned int at, unsigned int size, Body body) {
#pragma unroll
  for (int u = 0; u < Access::kAtOnce; ++u) {
    const unsigned int i = at + u * blockDim.x;
    if (i < size) body(i, u);
  }
}

class Kernel {
 public:
  __device__ __forceinline__ Kernel(const KernelArguments& a, const SourceArguments& source,
                                    const SinkArguments& sink, const Rounds& rounds)
      : a_(a),
        source_(source),
        sink_(sink),
        rounds_(rounds),
        slots_(a),
        work_(a.count, a.chunk_bytes),
        are_all_full_(AreLeavesFull(source, a.count, 0, work_.leaves)) {}

  __device__ __forceinline__ unsigned int chunks() const { return work_.chunks.count(); }

  __device__ __forceinline__ void SendChunk(unsigned int c) const {
    WithAccess(c, source_.is_aligned != 0, [&](auto access) {
      ForPeers(access, c, [&](unsigned int at, int first) { SendLeaves(access, c, at, first); });
    });
  }

  // Chunk c was sent in round c; its sums are sent in round c + 1.
  __device__ __forceinline__ void ReduceChunk(unsigned int c) const {
    WithAccess(c, source_.is_aligned != 0 && sink_.is_aligned != 0, [&](auto access) {
      ForGroups(access, work_.SizeOf(a_.rank, c),
                [&](unsigned int at) { ReduceLeaves(access, c, at); });
    });
  }

  __device__ __forceinline__ void TakeSums(unsigned int c) const {
    WithAccess(c, sink_.is_aligned != 0, [&](auto access) {
      ForPeers(access, c, [&](unsigned int at, int first) { TakeLeaves(access, c, at, first); });
    });
  }

 private:
  // True if the leaves of the chunk are full, in all shares.
  __device__ __forceinline__ bool AreFull(unsigned int c) const {
    for (int owner = 0; owner < COTUNE_WORLD_SIZE; ++owner) {
      if (!AreLeavesFull(source_, a_.count, work_.First(owner, c), work_.SizeOf(owner, c))) {
        return false;
      }
    }
    return true;
  }

  // body(access) for a chunk whose operands are aligned, or not.
  template <typename Body>
  __device__ __forceinline__ void WithAccess(unsigned int c, bool is_aligned, Body body) const {
    if (is_aligned && (are_all_full_ || AreFull(c))) {
      body(WholeLeaves());
    } else {
      body(AnyLeaves());
    }
  }

  // body(at): the thread's leaves at, at + blockDim.x, ... of a chunk of `size` leaves, of which
  // there are access.kAtOnce.
  template <typename Access, typename Body>
  __device__ __forceinline__ void ForGroups(Access access, unsigned int size, Body body) const {
    const unsigned int step = blockDim.x * access.kAtOnce;
    for (unsigned int at = threadIdx.x; at < size; at += step) body(at);
  }
  // body(i, u): leaf i of the rank's own share of a chunk.
  template <typename Access, typename Body>
  __device__ __forceinline__ void ForOwnLeaves(Access access, unsigned int at, unsigned int c,
                                               Body body) const {
    ForLeavesAt(access, at, work_.SizeOf(a_.rank, c), body);
  }

  // Adds up the thread's leaves of the own share, and loads what the sink needs beside the sums.
  // Arrays are set to zeros: as a variable that one branch alone sets, each would keep its
  // registers through all rounds.
  template <typename Access>
  __device__ __forceinline__ void AddUp(Access access, unsigned int at, unsigned int c,
                                        Pack (&sums)[Access::kAtOnce][kLeafPacks],
                                        Sink::Operands (&operands)[Access::kAtOnce]) const {
    Leaf<Reduced> own[access.kAtOnce] = {};
    Pack others[access.kAtOnce][kPacksOfLeafAtOnce][kPeers] = {};
#pragma unroll
    for (int first = 0; first < kLeafPacks; first += kPacksOfLeafAtOnce) {
      ForOwnLeaves(access, at, c, [&](unsigned int i, int u) {
        const unsigned long long leaf = work_.First(a_.rank, c) + i;
        if (first == 0) own[u] = LeafOfSource(access, source_, leaf, a_.count);
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          const unsigned char* const slot =
              slots_.In(a_.rank, PeerAt(q, a_.rank), rounds_.Number(c));
#pragma unroll
          for (int p = 0; p < kPacksOfLeafAtOnce; ++p) {
            others[u][p][q] = LoadFromPeer(slot + work_.At(c, i, first + p));
          }
        }
        if (first == 0) operands[u] = LoadSink(access, sink_, leaf, a_.count);
      });
      ForOwnLeaves(access, at, c, [&](unsigned int, int u) {
#pragma unroll
        for (int p = 0; p < kPacksOfLeafAtOnce; ++p) {
          sums[u][first + p] = ReduceInRankOrder(PackOf(own[u], first + p), others[u][p], a_.rank);
        }
      });
    }
  }

  // body(at, first): a group of leaves in the shares of kPeersAtOnce peers from `first` on.
  template <typename Access, typename Body>
  __device__ __forceinline__ void ForPeers(Access access, unsigned int c, Body body) const {
    ForGroups(access, work_.Size(c), [&](unsigned int at) {
#pragma unroll
      for (int first = 0; first < kPeers; first += kPeersAtOnce) body(at, first);
    });
  }

  template <typename Access>
  __device__ __forceinline__ void SendLeaves(Access access, unsigned int c, unsigned int at,
                                             int first) const {
    Leaf<Reduced> leaves[kPeersAtOnce][access.kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kPeersAtOnce; ++n) {
      if (first + n >= kPeers) continue;
      const int owner = PeerAfter(a_.rank, first + n);
      ForLeavesAt(access, at, work_.SizeOf(owner, c), [&](unsigned int i, int u) {
        leaves[n][u] = LeafOfSource(access, source_, work_.First(owner, c) + i, a_.count);
      });
    }
#pragma unroll
    for (int n = 0; n < kPeersAtOnce; ++n) {
      if (first + n >= kPeers) continue;
      const int owner = PeerAfter(a_.rank, first + n);
      unsigned char* const slot = slots_.In(owner, a_.rank, rounds_.Number(c));
      ForLeavesAt(access, at, work_.SizeOf(owner, c), [&](unsigned int i, int u) {
        if (!rounds_.IsOpen()) return;
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) {
          StoreToPeer(slot + work_.At(c, i, p), PackOf(leaves[n][u], p));
        }
      });
    }
  }

  template <typename Access>
  __device__ __forceinline__ void ReduceLeaves(Access access, unsigned int c,
                                               unsigned int at) const {
    Pack sums[access.kAtOnce][kLeafPacks] = {};
    Sink::Operands operands[access.kAtOnce] = {};
    AddUp(access, at, c, sums, operands);
    ForOwnLeaves(access, at, c, [&](unsigned int i, int u) {
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        unsigned char* const slot =
            slots_.Out(PeerAfter(a_.rank, hop), a_.rank, rounds_.Number(c + 1));
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) StoreToPeer(slot + work_.At(c, i, p), sums[u][p]);
      }
      StoreSink(access, sink_, work_.First(a_.rank, c) + i, a_.count, operands[u], sums[u]);
    });
  }

  template <typename Access>
  __device__ __forceinline__ void TakeLeaves(Access access, unsigned int c, unsigned int at,
                                             int first) const {
    Pack sums[kPeersAtOnce][access.kAtOnce][kLeafPacks] = {};
#pragma unroll
    for (int n = 0; n < kPeersAtOnce; ++n) {
      if (first + n >= kPeers) continue;
      const int owner = PeerAt(first + n, a_.rank);
      const unsigned char* const slot = slots_.Out(a_.rank, owner, rounds_.Number(c + 1));
      ForLeavesAt(access, at, work_.SizeOf(owner, c), [&](unsigned int i, int u) {
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) {
          sums[n][u][p] = LoadFromPeer(slot + work_.At(c, i, p));
        }
      });
    }
#pragma unroll
    for (int n = 0; n < kPeersAtOnce; ++n) {
      if (first + n >= kPeers) continue;
      const int owner = PeerAt(first + n, a_.rank);
      Sink::Operands operands[access.kAtOnce] = {};
      ForLeavesAt(access, at, work_.SizeOf(owner, c), [&](unsigned int i, int u) {
        operands[u] = LoadSink(access, sink_, work_.First(owner, c) + i, a_.count);
      });
      ForLeavesAt(access, at, work_.SizeOf(owner, c), [&](unsigned int i, int u) {
        StoreSink(access, sink_, work_.First(owner, c) + i, a_.count, operands[u], sums[n][u]);
      });
    }
  }

  const KernelArguments& a_;
  const SourceArguments& source_;
  const SinkArguments& sink_;
  const Rounds& rounds_;
  const FlaggedSlots slots_;
  const LeafChunks work_;
  const bool are_all_full_;
};

}  // namespace

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a,
                  const __grid_constant__ SourceArguments source,
                  const __grid_constant__ SinkArguments sink) {
  BeginLaunch(a, source, sink);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const Kernel kernel(a, source, sink, rounds);
  const unsigned int count = kernel.chunks();
  if (count == 0) return;
  for (unsigned int round = 0; round < count + 2; ++round) {
    if (round < count) kernel.SendChunk(round);
    if (round == 0 && !rounds.Begin()) return;
    if (round >= 1 && !rounds.WaitForFlags(round - 1)) return;
    if (round >= 1 && round - 1 < count) kernel.ReduceChunk(round - 1);
    if (round >= 2) kernel.TakeSums(round - 2);
    if (round <= count) rounds.SetFlags(round);
  }
  rounds.End(count + 1);
}
