// Data of any bits that says itself when it is there, with one bit of every eight bytes as the flag.
// The bits that made room travel in one word more behind the COTUNE_UNROLL packs of a thread: with
// four packs 9 bytes carry 8, where "ll" takes 16. Nothing is relied on but that eight bytes arrive
// whole.
//
// The top bit of eight bytes is 0 when they are there; empty slots are all ones, as in "lamport"
// scratch, which this is.
#pragma once

#include "pack_array.cuh"
#include "transport.cuh"

namespace cotune::cuda {

// The packs of one thread in one step, on their way or out of it.
struct BitGroup {
  Pack packs[COTUNE_UNROLL];  // on their way: with the top bits of their halves zero
  // Bit 2 u + h is the top bit of half h of pack u. As long as the top bit of this is 0, it is
  // there.
  unsigned long long tops;

  __device__ __forceinline__ void Encode() {
    unsigned int bits = 0;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned int& word = packs[u].word[2 * half + 1];
        bits |= word >> 31 << (2 * u + half);
        word &= 0x7FFFFFFFu;
      }
    }
    tops = bits;
  }
  __device__ __forceinline__ void Decode() {
    const auto bits = static_cast<unsigned int>(tops);
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        packs[u].word[2 * half + 1] |= bits >> (2 * u + half) << 31;
      }
    }
  }
  // The top bits of all that must be there: 0 when all is, 1 when all is empty or some is.
  __device__ __forceinline__ unsigned int AnyEmpty() const {
    unsigned int any = static_cast<unsigned int>(tops >> 32);
#pragma unroll
    for (const Pack& p : packs) any |= p.word[1] | p.word[3];
    return any >> 31;
  }
  __device__ __forceinline__ unsigned int AllEmpty() const {
    unsigned int all = static_cast<unsigned int>(tops >> 32);
#pragma unroll
    for (const Pack& p : packs) all &= p.word[1] & p.word[3];
    return all >> 31;
  }
};

// Where the groups of this thread lie in the scratch of a step, and which packs they are of the data
// that a step takes: a block has a row of blockDim.x packs for each that a thread has at once.
class BitSlots {
 public:
  __device__ __forceinline__ explicit BitSlots(const Launch& launch)
      : threads_(launch.threads()),
        thread_(launch.thread()),
        first_(blockIdx.x * blockDim.x * COTUNE_UNROLL + threadIdx.x) {}

  __device__ __forceinline__ unsigned int step_packs() const { return threads_ * COTUNE_UNROLL; }
  __device__ __forceinline__ unsigned int Index(int u) const { return first_ + u * blockDim.x; }

  // `scratch`: of the step, on the rank that gets the group; `from`: who sends it.
  __device__ __forceinline__ void Send(unsigned char* scratch, int from,
                                       const BitGroup& group) const {
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      StoreRelaxed(PackSlot(scratch, from, u), group.packs[u]);
    }
    StoreRelaxedHalf(TopsSlot(scratch, from), group.tops);
  }
  // A group that says no more than that its thread has come this far.
  __device__ __forceinline__ void SendGreeting(unsigned char* scratch, int from) const {
    StoreRelaxedHalf(TopsSlot(scratch, from), 0);
  }
  __device__ __forceinline__ BitGroup Load(const unsigned char* scratch, int from) const {
    BitGroup group;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) group.packs[u] = LoadRelaxed(PackSlot(scratch, from, u));
    group.tops = LoadGreeting(scratch, from);
    return group;
  }
  __device__ __forceinline__ unsigned long long LoadGreeting(const unsigned char* scratch,
                                                             int from) const {
    return LoadRelaxedHalf(TopsSlot(scratch, from));
  }
  __device__ __forceinline__ void Clear(unsigned char* scratch, int from) const {
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      StoreRelaxed(PackSlot(scratch, from, u), Pack{{~0u, ~0u, ~0u, ~0u}});
    }
    ClearGreeting(scratch, from);
  }
  __device__ __forceinline__ void ClearGreeting(unsigned char* scratch, int from) const {
    StoreRelaxedHalf(TopsSlot(scratch, from), ~0ull);
  }

 private:
  // All packs that `from` sends, then all tops.
  template <typename Byte>
  __device__ __forceinline__ Byte* Region(Byte* scratch, int from) const {
    return scratch + static_cast<unsigned long long>(from) * threads_ *
                         (COTUNE_UNROLL * kPackBytes + sizeof(unsigned long long));
  }
  template <typename Byte>
  __device__ __forceinline__ Byte* PackSlot(Byte* scratch, int from, int u) const {
    return Region(scratch, from) + static_cast<unsigned long long>(Index(u)) * kPackBytes;
  }
  template <typename Byte>
  __device__ __forceinline__ Byte* TopsSlot(Byte* scratch, int from) const {
    return Region(scratch, from) + static_cast<unsigned long long>(step_packs()) * kPackBytes +
           thread_ * sizeof(unsigned long long);
  }

  unsigned int threads_;
  unsigned int thread_;
  unsigned int first_;
};

// Waits for the groups of ranks from(0), ... from(kCount - 1), takes them out, decodes nothing, and
// leaves their slots empty, as Receive of transport.cuh does: that is where is_last is explained.
// All loads are in flight at once. False: gave up.
template <int kCount, int kSize, typename From>
__device__ __forceinline__ bool ReceiveGroups(const BitSlots& slots, unsigned char* scratch,
                                              From from, BitGroup (&groups)[kSize],
                                              unsigned int step, bool is_last,
                                              Patience& patience) {
  static_assert(kCount <= kSize, "no room for all groups");
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int j = 0; j < kCount; ++j) groups[j] = slots.Load(scratch, from(j));
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (groups[j].AnyEmpty() != 0) missing = from(j);
    }
    if (missing < 0) break;
    if (polls % 1024 == 0 && patience.IsOver(missing, step)) return false;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) slots.Clear(scratch, from(j));
  if (is_last) return true;
  unsigned int is_clear = 1;
#pragma unroll
  for (int j = 0; j < kCount; ++j) is_clear &= slots.Load(scratch, from(j)).AllEmpty();
  // Never so: a peer that wrote again has broken the protocol.
  if (is_clear == 0) patience.Fail(kProtocol, from(0), step);
  return is_clear != 0;
}

// The same for greetings of all peers.
__device__ __forceinline__ bool ReceiveGreetings(const BitSlots& slots, unsigned char* scratch,
                                                 int rank, unsigned int step, bool is_last,
                                                 Patience& patience) {
  constexpr unsigned long long kEmpty = 1ull << 63;
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int q = 0; q < kPeers; ++q) {
      const int peer = PeerAt(q, rank);
      if ((slots.LoadGreeting(scratch, peer) & kEmpty) != 0) missing = peer;
    }
    if (missing < 0) break;
    if (polls % 1024 == 0 && patience.IsOver(missing, step)) return false;
  }
#pragma unroll
  for (int q = 0; q < kPeers; ++q) slots.ClearGreeting(scratch, PeerAt(q, rank));
  if (is_last) return true;
  unsigned long long is_clear = kEmpty;
#pragma unroll
  for (int q = 0; q < kPeers; ++q) is_clear &= slots.LoadGreeting(scratch, PeerAt(q, rank));
  if (is_clear == 0) patience.Fail(kProtocol, rank, step);
  return is_clear != 0;
}

}  // namespace cotune::cuda
