// Rows with reductions, in parts and around collectives. A row belongs to COTUNE_ROW_THREADS
// threads, a power of two, in each of COTUNE_ROW_BLOCKS blocks, which are a cluster if there are
// several. Thread t of a row has its leaves t, t + kThreadsOfRow, and so on.
//
// Row reductions have one tree, which depends on the columns alone. A leaf is reduced in the order
// of its columns. The leaves are padded with the identity to a power of two and folded from the
// highest bit of their index down: first within a thread, then warp by warp through the block's
// memory, then block by block through the memory of the cluster, then lane by lane.
#pragma once

#include "part_blocks.cuh"
#include "part_leaf.cuh"

namespace cotune::cuda {

#if defined(COTUNE_ROW_BLOCKS)
constexpr int kRowBlocks = COTUNE_ROW_BLOCKS;
#else
constexpr int kRowBlocks = 1;
#endif
constexpr int kRowThreads = COTUNE_ROW_THREADS;  // in each block
constexpr int kThreadsOfRow = kRowThreads * kRowBlocks;
constexpr int kRowsOfBlock = COTUNE_THREADS / kRowThreads;
constexpr int kWarpLanes = 32;
constexpr int kRowWarps = kRowThreads > kWarpLanes ? kRowThreads / kWarpLanes : 1;

constexpr int LeavesOfThread(int columns) {
  return (columns + kLeafColumns * kThreadsOfRow - 1) / (kLeafColumns * kThreadsOfRow);
}

// Inputs stay in registers between the passes over a row while all of them need no more than so
// many in a thread.
constexpr int kHeldWordsMax = 48;

// ---- Reductions ----

struct SumOfRow {
  static constexpr bool kIsSymmetric = true;
  template <typename T>
  static __device__ __forceinline__ T Identity() {
    return static_cast<T>(-0.0);
  }
  template <typename T>
  static __device__ __forceinline__ T Of(T low, T high) {
    return low + high;
  }
};

// Which of two zeros it gives depends on their order.
struct MaxOfRow {
  static constexpr bool kIsSymmetric = false;
  template <typename T>
  static __device__ __forceinline__ T Identity() {
    return -static_cast<T>(__uint_as_float(0x7F800000u));
  }
  template <typename T>
  static __device__ __forceinline__ T Of(T low, T high) {
    return Max(low, high);
  }
};

// Adds element i of a leaf with `count` elements; aligned leaves are full, or not there at all.
template <class Reduction, bool kIsAligned, typename T>
__device__ __forceinline__ T InLeaf(T leaf, int i, unsigned int count, T value) {
  if (i == 0) return value;
  const bool is_there = kIsAligned || static_cast<unsigned int>(i) < count;
  return Reduction::Of(leaf, is_there ? value : Reduction::template Identity<T>());
}

// Folds an array that stands for one which is padded to a power of two.
template <class Reduction, int kCount, typename T>
__device__ __forceinline__ T Folded(T (&values)[kCount]) {
#pragma unroll
  for (int half = 1024; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < half && i + half < kCount) {
        values[i] = Reduction::Of(values[i], values[i + half]);
      }
    }
  }
  return values[0];
}

// Every lane gets the same bits.
template <class Reduction, typename T>
__device__ __forceinline__ T FoldedLanes(T value) {
  constexpr int kLanes = kRowThreads < kWarpLanes ? kRowThreads : kWarpLanes;
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    if (offset >= kLanes) continue;
    const T other = ShuffleXor(value, offset);
    const bool is_high = !Reduction::kIsSymmetric && (threadIdx.x & offset) != 0;
    value = is_high ? Reduction::Of(other, value) : Reduction::Of(value, other);
  }
  return value;
}

// The block's memory for reductions: two halves in turns, so that a thread that is ahead in the
// next reduction disturbs none that reads this one.
class RowMemory {
 public:
  // By all threads of the kernel, if a row has several blocks: before anything that waits, so that
  // the blocks of a cluster have begun when one of them pushes its part of a reduction to others.
  __device__ __forceinline__ void BeginCluster() {
    if constexpr (kRowBlocks > 1) {
      if (threadIdx.x == 0) {
        InitGate(GateOf(0));
        InitGate(GateOf(1));
        FenceGates();
      }
      ArriveAtCluster();
    }
  }
  // The values of a lane of all blocks, by block. value: that of this lane in this block, the same
  // in all of its warps. All threads of the cluster take part, after a barrier of their block since
  // the reduction before: so nobody overwrites what a thread of that reduction still reads.
  template <typename T>
  __device__ __forceinline__ void ExchangeBlocks(T value, T (&of_blocks)[kRowBlocks]) {
    const unsigned int half = turn_ & 1u;
    const unsigned int lane = threadIdx.x % kWarpLanes;
    T* const slots = reinterpret_cast<T*>(Memory() + kSlotsBegin + half * kSlotsBytes);
    void* const gate = GateOf(half);
    if (turn_ == 0) WaitForCluster();
    if (threadIdx.x == 0) ExpectBytes(gate, kRowBlocks * kWarpLanes * sizeof(T));
    T* const own = slots + blockIdx.x % kRowBlocks * kWarpLanes + lane;
#pragma unroll
    for (int i = 0; i < (kRowBlocks + kRowWarps - 1) / kRowWarps; ++i) {
      const unsigned int block = threadIdx.x / kWarpLanes + i * kRowWarps;
      if (block < kRowBlocks) PushToBlock(block, own, value, gate);
    }
    WaitAtGate(gate, turn_ >> 1 & 1u);
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b) of_blocks[b] = slots[b * kWarpLanes + lane];
    ++turn_;
  }
  template <typename T>
  __device__ __forceinline__ T* OfThreads() {
    half_ ^= 1u;
    return reinterpret_cast<T*>(Begin());
  }
  template <typename T>
  __device__ __forceinline__ T* OfRows() {
    return reinterpret_cast<T*>(Begin() + COTUNE_THREADS * 8);
  }

 private:
  static constexpr int kHalfBytes = (COTUNE_THREADS + kRowsOfBlock) * 8;
  static constexpr int kSlotsBegin = 2 * kHalfBytes;
  static constexpr int kSlotsBytes = kRowBlocks * kWarpLanes * 8;
  static constexpr int kGatesBegin = kSlotsBegin + 2 * kSlotsBytes;
  static constexpr int kBytes = kRowBlocks > 1 ? kGatesBegin + 2 * 8 : kSlotsBegin;
  __device__ __forceinline__ unsigned char* Memory() { return BlockMemory<kBytes>(); }
  __device__ __forceinline__ unsigned char* Begin() { return Memory() + half_ * kHalfBytes; }
  __device__ __forceinline__ void* GateOf(unsigned int half) {
    return Memory() + kGatesBegin + half * 8;
  }
  unsigned int half_ = 0;
  unsigned int turn_ = 0;  // reductions of several blocks so far
};

// Up to so many warps each fold all warps by themselves; beyond, reading the block's memory would
// take longer than another barrier.
constexpr int kEqualWarpsMax = 8;
static_assert(kRowBlocks == 1 || kRowWarps <= kEqualWarpsMax, "see ExchangeBlocks");

template <class Reduction, typename T>
__device__ __forceinline__ T FoldedWarps(T value, RowMemory& memory) {
  T* const of_threads = memory.OfThreads<T>();
  T* const of_rows = memory.OfRows<T>();
  of_threads[threadIdx.x] = value;
  __syncthreads();
  const unsigned int row = threadIdx.x / kRowThreads;
  const unsigned int thread = threadIdx.x % kRowThreads;
  T total = value;
  if (kRowWarps <= kEqualWarpsMax || thread < kWarpLanes) {
    T warps[kRowWarps];
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) {
      warps[w] = of_threads[row * kRowThreads + w * kWarpLanes + thread % kWarpLanes];
    }
    total = Folded<Reduction>(warps);
    if constexpr (kRowBlocks > 1) {
      T blocks[kRowBlocks];
      memory.ExchangeBlocks(total, blocks);
      total = Folded<Reduction>(blocks);
    }
    total = FoldedLanes<Reduction>(total);
  }
  if constexpr (kRowWarps > kEqualWarpsMax) {
    if (thread == 0) of_rows[row] = total;
    __syncthreads();
    total = of_rows[row];
  }
  return total;
}

// The leaves of this thread, in order; every thread of the row gets the result. All threads of the
// block take part.
template <class Reduction, int kCount, typename T>
__device__ __forceinline__ T FoldedRow(T (&leaves)[kCount], RowMemory& memory) {
  const T own = Folded<Reduction>(leaves);
  if constexpr (kRowWarps > 1 || kRowBlocks > 1) {
    return FoldedWarps<Reduction>(own, memory);
  } else {
    return FoldedLanes<Reduction>(own);
  }
}

// ---- Places ----

// The rows of this block, in steps that all of its threads take together.
class RowWalk {
 public:
  __device__ __forceinline__ explicit RowWalk(unsigned long long rows,
                                              const StageBlocks& blocks = WholeGrid())
      : rows_(rows),
        base_(static_cast<unsigned long long>(blocks.block) * kRowsOfBlock),
        blocks_(blocks.blocks) {}
  __device__ __forceinline__ bool HasMore() const { return base_ < rows_; }
  __device__ __forceinline__ void Next() {
    base_ += static_cast<unsigned long long>(blocks_) * kRowsOfBlock;
  }
  __device__ __forceinline__ unsigned long long row() const {
    return kRowsOfBlock == 1 ? base_ : base_ + threadIdx.x / kRowThreads;
  }
  __device__ __forceinline__ bool IsThere() const { return kRowsOfBlock == 1 || row() < rows_; }

 private:
  unsigned long long rows_;
  unsigned long long base_;
  unsigned int blocks_;
};

// The place of this thread among those of its row. Blocks stand in the middle bits, so that a warp
// reads 512 consecutive bytes.
__device__ __forceinline__ unsigned int ThreadOfRow() {
  if constexpr (kRowBlocks == 1) return threadIdx.x % kRowThreads;
  const unsigned int lane = threadIdx.x % kWarpLanes;
  const unsigned int warp = threadIdx.x / kWarpLanes;
  return (warp * kRowBlocks + blockIdx.x % kRowBlocks) * kWarpLanes + lane;
}
// True in one thread of a row that exists.
__device__ __forceinline__ bool IsFirstThreadOfRow(bool row_is_there) {
  return ThreadOfRow() == 0 && row_is_there;
}

// The first column of the thread's leaf j.
__device__ __forceinline__ unsigned int ColumnOf(int j) {
  return (ThreadOfRow() + j * kThreadsOfRow) * kLeafColumns;
}
// How many columns it has; 0: it is not there.
template <unsigned int kColumns>
__device__ __forceinline__ unsigned int ColumnsOf(int j, bool row_is_there) {
  if (!row_is_there) return 0;
  if constexpr (kColumns % (kLeafColumns * kThreadsOfRow) == 0) return kLeafColumns;
  const unsigned int column = ColumnOf(j);
  if (column >= kColumns) return 0;
  return kColumns - column < kLeafColumns ? kColumns - column : kLeafColumns;
}

// Whether all threads of a row have a leaf j; where not, warps without one save the work on it.
template <unsigned int kColumns>
__device__ constexpr bool IsThereForAll(int j) {
  return static_cast<unsigned int>((j + 1) * kThreadsOfRow) * kLeafColumns <= kColumns;
}

// What threads of a row have read before, others of them may overwrite behind it. Where a row has
// several warps, they have met at the barrier of a reduction since.
__device__ __forceinline__ void SyncRow() {
  if constexpr (kRowThreads <= kWarpLanes) SyncWarp();
}

// Runs the generated operations of a part on one row after the other.
template <class Rows>
__device__ __forceinline__ void ForEachRow(Rows rows, RowWalk walk, RowMemory& memory) {
  rows.LoadShared();
  for (; walk.HasMore(); walk.Next()) {
    rows.LoadRow(walk.row(), walk.IsThere());
    rows.Finish(walk.row(), walk.IsThere(), memory);
  }
}

}  // namespace cotune::cuda
