// Data of any bits that says itself when it is there, with one bit of every eight bytes as the
// flag. The bits that made room travel in one word more behind the COTUNE_UNROLL packs of a thread:
// with four packs 9 bytes carry 8, where "ll" takes 16. Nothing is relied on but that eight bytes
// arrive whole.
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

// Where the groups of this thread lie in scratch, and which packs they are of the data that a step
// takes: a block has a row of blockDim.x packs for each that a thread has at once.
class BitSlots {
 public:
  __device__ __forceinline__ BitSlots(const Launch& launch, int rank)
      : launch_(launch),
        rank_(rank),
        first_(blockIdx.x * blockDim.x * COTUNE_UNROLL + threadIdx.x) {}

  __device__ __forceinline__ unsigned int step_packs() const {
    return launch_.threads() * COTUNE_UNROLL;
  }
  __device__ __forceinline__ unsigned int Index(int u) const { return first_ + u * blockDim.x; }

  // ---- To the scratch of a peer ----
  __device__ __forceinline__ void Send(int peer, const BitGroup& group) const {
    unsigned char* region = Region(peer, rank_);
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) StoreRelaxed(PackSlot(region, u), group.packs[u]);
    StoreRelaxedHalf(TopsSlot(region), group.tops);
  }
  // A group that says no more than that its thread has come this far.
  __device__ __forceinline__ void SendGreeting(int peer) const {
    StoreRelaxedHalf(TopsSlot(Region(peer, rank_)), 0);
  }

  // ---- In the scratch of this rank, where a peer sends to ----
  __device__ __forceinline__ BitGroup Load(int peer) const {
    const unsigned char* region = Region(rank_, peer);
    BitGroup group;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) group.packs[u] = LoadRelaxed(PackSlot(region, u));
    group.tops = LoadRelaxedHalf(TopsSlot(region));
    return group;
  }
  __device__ __forceinline__ unsigned long long LoadGreeting(int peer) const {
    return LoadRelaxedHalf(TopsSlot(Region(rank_, peer)));
  }
  __device__ __forceinline__ void Clear(int peer) const {
    unsigned char* region = Region(rank_, peer);
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      StoreRelaxed(PackSlot(region, u), Pack{{~0u, ~0u, ~0u, ~0u}});
    }
    ClearGreeting(peer);
  }
  __device__ __forceinline__ void ClearGreeting(int peer) const {
    StoreRelaxedHalf(TopsSlot(Region(rank_, peer)), ~0ull);
  }

 private:
  // In the scratch of `rank`: all packs that `source` sends, then all tops.
  __device__ __forceinline__ unsigned char* Region(int rank, int source) const {
    constexpr unsigned int kThreadBytes = COTUNE_UNROLL * kPackBytes + sizeof(BitGroup::tops);
    // Sources in ascending order without the rank itself.
    const int place = source < rank ? source : source - 1;
    return launch_.Scratch(rank) +
           static_cast<unsigned long long>(place) * launch_.threads() * kThreadBytes;
  }
  template <typename Byte>
  __device__ __forceinline__ Byte* PackSlot(Byte* region, int u) const {
    return region + static_cast<unsigned long long>(Index(u)) * kPackBytes;
  }
  template <typename Byte>
  __device__ __forceinline__ Byte* TopsSlot(Byte* region) const {
    return region + static_cast<unsigned long long>(step_packs()) * kPackBytes +
           launch_.thread() * sizeof(BitGroup::tops);
  }

  const Launch& launch_;
  int rank_;
  unsigned int first_;
};

// Waits for the groups of ranks from(0), ... from(kCount - 1), takes them out, decodes nothing, and
// leaves their slots empty, as Receive of transport.cuh does: that is where is_last is explained.
// All loads are in flight at once. False: gave up.
template <int kCount, int kSize, typename From>
__device__ __forceinline__ bool ReceiveGroups(const BitSlots& slots, From from,
                                              BitGroup (&groups)[kSize], unsigned int step,
                                              bool is_last, Patience& patience) {
  static_assert(kCount <= kSize, "no room for all groups");
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int j = 0; j < kCount; ++j) groups[j] = slots.Load(from(j));
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (groups[j].AnyEmpty() != 0) missing = from(j);
    }
    if (missing < 0) break;
    if (polls % 1024 == 0 && patience.IsOver(missing, step)) return false;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) slots.Clear(from(j));
  if (is_last) return true;
  unsigned int is_clear = 1;
#pragma unroll
  for (int j = 0; j < kCount; ++j) is_clear &= slots.Load(from(j)).AllEmpty();
  // Never so: a peer that wrote again has broken the protocol.
  if (is_clear == 0) patience.Fail(kProtocol, from(0), step);
  return is_clear != 0;
}

// The same for greetings of all peers.
__device__ __forceinline__ bool ReceiveGreetings(const BitSlots& slots, int rank, unsigned int step,
                                                 bool is_last, Patience& patience) {
  constexpr unsigned long long kEmpty = 1ull << 63;
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int q = 0; q < kPeers; ++q) {
      const int peer = PeerAt(q, rank);
      if ((slots.LoadGreeting(peer) & kEmpty) != 0) missing = peer;
    }
    if (missing < 0) break;
    if (polls % 1024 == 0 && patience.IsOver(missing, step)) return false;
  }
#pragma unroll
  for (int q = 0; q < kPeers; ++q) slots.ClearGreeting(PeerAt(q, rank));
  if (is_last) return true;
  unsigned long long is_clear = kEmpty;
#pragma unroll
  for (int q = 0; q < kPeers; ++q) is_clear &= slots.LoadGreeting(PeerAt(q, rank));
  if (is_clear == 0) patience.Fail(kProtocol, rank, step);
  return is_clear != 0;
}

}  // namespace cotune::cuda
