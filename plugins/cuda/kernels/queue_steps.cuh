// The steps of a rank for one chunk in a ring or a tree: it adds its own data to what comes in, or
// only passes that on.
#pragma once

#include "chunks.cuh"
#include "queues.cuh"

namespace cotune::cuda {

// Elements that are added up but not yet all of them, as they travel from rank to rank. Sums of
// 16-bit floats stay in f32 on the way, so that they are rounded once, at the end, as those of the
// other kernels are: no sum overflows on the way that would not in f32, and choices differ in the
// order of their additions only. This costs half as much data again in an all_reduce. Minimum and
// maximum are operands, nothing is lost.
#if (defined(COTUNE_DTYPE_F16) || defined(COTUNE_DTYPE_BF16)) && !defined(COTUNE_REDUCTION_MIN) && \
    !defined(COTUNE_REDUCTION_MAX)
constexpr int kPartialPacks = 2;
#else
constexpr int kPartialPacks = 1;
#endif

struct Partial {
  Pack pack[kPartialPacks];
};

// Element i of a pack of partial sums.
__device__ __forceinline__ Accumulator Get(const Partial& p, int i) {
  if constexpr (kPartialPacks == 1) {
    return Get(p.pack[0], i);
  } else {
    return __uint_as_float(p.pack[i / 4].word[i % 4]);
  }
}

__device__ __forceinline__ Partial PartialFrom(const Accumulator (&values)[kPackElements]) {
  Partial p;
  if constexpr (kPartialPacks == 1) {
    p.pack[0] = FromElements(values);
  } else {
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) {
      p.pack[i / 4].word[i % 4] = __float_as_uint(values[i]);
    }
  }
  return p;
}

// In a slot the first halves of all `size` partials lie before the second ones, so that threads
// side by side use memory side by side.
__device__ __forceinline__ Partial LoadPartial(const unsigned char* slot, unsigned int size,
                                               unsigned int i) {
  Partial p;
#pragma unroll
  for (int h = 0; h < kPartialPacks; ++h) {
    p.pack[h] = LoadFromPeer(slot + (1ull * h * size + i) * kPackBytes);
  }
  return p;
}

__device__ __forceinline__ void SendPartial(unsigned char* slot, unsigned int size, unsigned int i,
                                            const Partial& p) {
#pragma unroll
  for (int h = 0; h < kPartialPacks; ++h) {
    StoreToPeer(slot + (1ull * h * size + i) * kPackBytes, p.pack[h]);
  }
}

// A chunk of the caller's buffers.
struct ChunkPlace {
  unsigned long long begin;  // first pack
  unsigned int size;         // in packs
  bool are_whole;            // every pack is aligned and complete, in both buffers
};

// Adds this rank's chunk of `send` to what comes in, always in the same order. Not the last rank to
// do so: sends the partial sums; the last one: keeps the result in `recv` and sends that. False:
// gave up.
template <bool kIsLast, int kInlets, int kOutlets>
__device__ __forceinline__ bool ReduceChunk(Queues& queues, Inlet (&from)[kInlets],
                                            Outlet (&to)[kOutlets], const ChunkPlace& chunk,
                                            const PackArray& send, const PackArray& recv) {
  if (!queues.Wait(from, to)) return false;
  ForPacks(chunk.size, chunk.are_whole, [&](auto access, unsigned int at) {
    Pack own[access.kUnroll];
    Partial others[access.kUnroll][kInlets];
#pragma unroll
    for (int u = 0; u < access.kUnroll; ++u) {
      const unsigned int i = at + u * blockDim.x;
      if (i >= chunk.size) continue;
      own[u] = access.Load(send, chunk.begin + i);
#pragma unroll
      for (int e = 0; e < kInlets; ++e) {
        if (from[e].is_used()) others[u][e] = LoadPartial(from[e].Slot(), chunk.size, i);
      }
    }
#pragma unroll
    for (int u = 0; u < access.kUnroll; ++u) {
      const unsigned int i = at + u * blockDim.x;
      if (i >= chunk.size) continue;
      Accumulator total[kPackElements];
#pragma unroll
      for (int k = 0; k < kPackElements; ++k) total[k] = Get(own[u], k);
#pragma unroll
      for (int e = 0; e < kInlets; ++e) {
        if (!from[e].is_used()) continue;
#pragma unroll
        for (int k = 0; k < kPackElements; ++k) total[k] = Combine(total[k], Get(others[u][e], k));
      }
      if constexpr (kIsLast) {
#pragma unroll
        for (int k = 0; k < kPackElements; ++k) total[k] = Finish(total[k]);
        const Pack result = FromElements(total);
        access.Store(recv, chunk.begin + i, result);
#pragma unroll
        for (int e = 0; e < kOutlets; ++e) {
          if (to[e].is_used()) StoreToPeer(to[e].Slot() + i * kPackBytes, result);
        }
      } else {
        const Partial partial = PartialFrom(total);
#pragma unroll
        for (int e = 0; e < kOutlets; ++e) {
          if (to[e].is_used()) SendPartial(to[e].Slot(), chunk.size, i, partial);
        }
      }
    }
  });
  queues.Advance(from, to);
  return true;
}

// Takes a chunk that came in, or where nothing comes in this rank's own of `send`; keeps it in
// `recv`, unless it is there, and passes it on. False: gave up.
template <int kOutlets>
__device__ __forceinline__ bool MoveChunk(Queues& queues, Inlet (&from)[1], Outlet (&to)[kOutlets],
                                          const ChunkPlace& chunk, const PackArray& send,
                                          const PackArray& recv, bool keeps) {
  if (!queues.Wait(from, to)) return false;
  const bool is_own = !from[0].is_used();
  ForPacks(chunk.size, chunk.are_whole, [&](auto access, unsigned int at) {
    Pack packs[access.kUnroll];
#pragma unroll
    for (int u = 0; u < access.kUnroll; ++u) {
      const unsigned int i = at + u * blockDim.x;
      if (i >= chunk.size) continue;
      packs[u] = is_own ? access.Load(send, chunk.begin + i)
                        : LoadFromPeer(from[0].Slot() + i * kPackBytes);
    }
#pragma unroll
    for (int u = 0; u < access.kUnroll; ++u) {
      const unsigned int i = at + u * blockDim.x;
      if (i >= chunk.size) continue;
#pragma unroll
      for (int e = 0; e < kOutlets; ++e) {
        if (to[e].is_used()) StoreToPeer(to[e].Slot() + i * kPackBytes, packs[u]);
      }
      if (keeps) access.Store(recv, chunk.begin + i, packs[u]);
    }
  });
  queues.Advance(from, to);
  return true;
}

}  // namespace cotune::cuda
