// Data that says itself when it is there: no flag to wait for, no fence, one way over the link.
// Sendable(p) is p as the peers will see it; a rank uses that for its own part too, so that all
// have the same bits.
#pragma once

#include "patience.cuh"

namespace cotune::cuda {

#if defined(COTUNE_TRANSPORT_LAMPORT)

// For floats: empty words are one NaN bit pattern, which a sender replaces by another NaN. Each
// word is looked at, so that words of one store may arrive one by one.
struct Transport {
  static constexpr unsigned long long kBegin = kLamportBegin;
  static constexpr unsigned long long kBytes = kLamportBytes;
  static constexpr int kSlotBytes = 16;
  static constexpr unsigned int kEmpty = 0xFFFFFFFFu;
#if defined(COTUNE_DTYPE_F32)
  static constexpr unsigned int kOtherNan = 0x7FFFFFFFu;
#else
  static constexpr unsigned int kOtherNan = 0x7FFF7FFFu;
#endif
  struct Raw {
    Pack pack;
  };

  static __device__ __forceinline__ Pack Sendable(Pack p) {
#pragma unroll
    for (int w = 0; w < 4; ++w) p.word[w] = p.word[w] == kEmpty ? kOtherNan : p.word[w];
    return p;
  }
  static __device__ __forceinline__ void Send(unsigned char* slot, const Pack& p) {
    StoreRelaxed(slot, p);
  }
  static __device__ __forceinline__ Raw Load(const unsigned char* slot) {
    return {LoadRelaxed(slot)};
  }
  static __device__ __forceinline__ bool IsThere(const Raw& raw) {
    const unsigned int* w = raw.pack.word;
    return w[0] != kEmpty && w[1] != kEmpty && w[2] != kEmpty && w[3] != kEmpty;
  }
  static __device__ __forceinline__ bool Complete(unsigned char* /*slot*/, Raw& /*raw*/,
                                                  int /*peer*/, unsigned int /*step*/,
                                                  Patience& /*patience*/) {
    return true;
  }
  static __device__ __forceinline__ Pack Value(const Raw& raw) { return raw.pack; }
  static __device__ __forceinline__ void Clear(unsigned char* slot) {
    StoreRelaxed(slot, Pack{{kEmpty, kEmpty, kEmpty, kEmpty}});
  }
};

#elif defined(COTUNE_TRANSPORT_LL)

// For any bits: each word travels with a flag beside it, in one store of 8 bytes that arrives
// whole. The halves of packs lie in two planes, so that what the threads of a warp store at once is
// one piece: half a sector takes the link as long as a whole one.
struct Transport {
  static constexpr unsigned long long kBegin = kLlBegin;
  static constexpr unsigned long long kBytes = kLlBytes;
  static constexpr int kSlotBytes = 16;  // in each plane
  static constexpr unsigned long long kPlaneBytes = kBytes / 2;
  static constexpr unsigned int kFull = 1;
  struct Raw {
    Pack low, high;
  };

  static __device__ __forceinline__ Pack Sendable(const Pack& p) { return p; }
  static __device__ __forceinline__ void Send(unsigned char* slot, const Pack& p) {
    StoreRelaxed(slot, Pack{{p.word[0], kFull, p.word[1], kFull}});
    StoreRelaxed(slot + kPlaneBytes, Pack{{p.word[2], kFull, p.word[3], kFull}});
  }
  static __device__ __forceinline__ Raw Load(const unsigned char* slot) {
    return {LoadRelaxed(slot), LoadRelaxed(slot + kPlaneBytes)};
  }
  static __device__ __forceinline__ bool IsThere(const Raw& raw) {
    return (raw.low.word[1] & raw.low.word[3] & raw.high.word[1] & raw.high.word[3]) == kFull;
  }
  static __device__ __forceinline__ bool Complete(unsigned char* /*slot*/, Raw& /*raw*/,
                                                  int /*peer*/, unsigned int /*step*/,
                                                  Patience& /*patience*/) {
    return true;
  }
  static __device__ __forceinline__ Pack Value(const Raw& raw) {
    return Pack{{raw.low.word[0], raw.low.word[2], raw.high.word[0], raw.high.word[2]}};
  }
  static __device__ __forceinline__ void Clear(unsigned char* slot) {
    StoreRelaxed(slot, Pack{{0, 0, 0, 0}});
    StoreRelaxed(slot + kPlaneBytes, Pack{{0, 0, 0, 0}});
  }
};

#elif defined(COTUNE_TRANSPORT_ESCAPE)

// For any bits, and nothing but them on the way: a half of a pack (eight bytes, which arrive whole)
// is empty when it is all ones. One that would look empty travels as kEscaped, and so does one that
// is kEscaped itself; which of the two it was is said in a word beside the slot, that the reader
// looks at only then. A mask makes both rare.
struct Transport {
  static constexpr unsigned long long kBegin = kLamportBegin;
  static constexpr unsigned long long kBytes = kLamportBytes;
  static constexpr int kSlotBytes = 16;
  static constexpr unsigned long long kEmpty = ~0ull;
  static constexpr unsigned long long kEscaped = kEmpty - 1;
  struct Raw {
    unsigned long long half[2];  // as on their way
  };

  static __device__ __forceinline__ Pack Sendable(const Pack& p) { return p; }
  static __device__ __forceinline__ void Send(unsigned char* slot, const Pack& p) {
    Raw raw = Masked(p);
    // kEscaped or kEmpty.
    const bool low = raw.half[0] >= kEscaped;
    const bool high = raw.half[1] >= kEscaped;
    if (low || high) {
      const unsigned long long were_empty =
          (raw.half[0] == kEmpty ? 1u : 0u) | (raw.half[1] == kEmpty ? 2u : 0u);
      StoreRelaxedHalf(slot + kBesideOffset, were_empty);
      if (low) raw.half[0] = kEscaped;
      if (high) raw.half[1] = kEscaped;
    }
    StoreRelaxed(slot, PackOf(raw));
  }
  static __device__ __forceinline__ Raw Load(const unsigned char* slot) {
    return HalvesOf(LoadRelaxed(slot));
  }
  static __device__ __forceinline__ bool IsThere(const Raw& raw) {
    return raw.half[0] != kEmpty && raw.half[1] != kEmpty;
  }
  // Once it is there: waits for the word beside it, if it has one, and takes that out. False: gave
  // up.
  static __device__ __forceinline__ bool Complete(unsigned char* slot, Raw& raw, int peer,
                                                  unsigned int step, Patience& patience) {
    const bool low = raw.half[0] == kEscaped;
    const bool high = raw.half[1] == kEscaped;
    if (!low && !high) return true;
    const unsigned long long were_empty = TakeBeside(slot + kBesideOffset, peer, step, patience);
    if (were_empty == kEmpty) return false;
    if (low && (were_empty & 1) != 0) raw.half[0] = kEmpty;
    if (high && (were_empty & 2) != 0) raw.half[1] = kEmpty;
    return true;
  }
  static __device__ __forceinline__ Pack Value(const Raw& raw) {
    return PackOf({{raw.half[0] ^ kEscapeMask, raw.half[1] ^ kEscapeMask}});
  }
  static __device__ __forceinline__ void Clear(unsigned char* slot) {
    StoreRelaxed(slot, Pack{{~0u, ~0u, ~0u, ~0u}});
  }

 private:
  static __device__ __forceinline__ Raw HalvesOf(const Pack& p) {
    return {{static_cast<unsigned long long>(p.word[1]) << 32 | p.word[0],
             static_cast<unsigned long long>(p.word[3]) << 32 | p.word[2]}};
  }
  static __device__ __forceinline__ Raw Masked(const Pack& p) {
    const Raw raw = HalvesOf(p);
    return {{raw.half[0] ^ kEscapeMask, raw.half[1] ^ kEscapeMask}};
  }
  static __device__ __forceinline__ Pack PackOf(const Raw& raw) {
    return Pack{{static_cast<unsigned int>(raw.half[0]),
                 static_cast<unsigned int>(raw.half[0] >> 32),
                 static_cast<unsigned int>(raw.half[1]),
                 static_cast<unsigned int>(raw.half[1] >> 32)}};
  }
  // kEmpty: gave up. It is read back until it is seen empty, as slots are before another step.
  static __device__ __noinline__ unsigned long long TakeBeside(unsigned char* word, int peer,
                                                               unsigned int step,
                                                               Patience& patience) {
    unsigned long long value = LoadRelaxedHalf(word);
    for (unsigned int polls = 1; value == kEmpty; ++polls) {
      if (polls % 1024 == 0 && patience.IsOver(peer, step)) return kEmpty;
      value = LoadRelaxedHalf(word);
    }
    StoreRelaxedHalf(word, kEmpty);
    if (LoadRelaxedHalf(word) != kEmpty) {
      // Never so: a peer that wrote again has broken the protocol.
      patience.Fail(kProtocol, peer, step);
      return kEmpty;
    }
    return value;
  }
};

#elif defined(COTUNE_TRANSPORT_BITS)

// In groups of packs, see bits.cuh.
struct Transport {
  static constexpr unsigned long long kBegin = kLamportBegin;
  static constexpr unsigned long long kBytes = kLamportBytes;
};

#else
#error "compile with -DCOTUNE_TRANSPORT_..."
#endif

#if !defined(COTUNE_TRANSPORT_BITS)
// Waits for one pack of each of some ranks in this rank's scratch, takes them out and leaves the
// slots empty. slot(j) is that of rank from(j), of those with sends(j). All loads are in flight at
// once. False: gave up.
//
// is_last: no step of this launch follows. Before one that follows, the slots must be seen empty in
// memory: a peer that hears from this thread in the next step may then write into them, and nothing
// else keeps its data from arriving before the store that empties them. Reading back what was
// stored waits for that, at a fraction of what a fence costs. At the end of a launch the hardware
// does it.
template <int kCount, typename From, typename SlotOf, typename Sends>
__device__ __forceinline__ bool ReceiveFrom(From from, SlotOf slot, Sends sends,
                                            Pack (&values)[kCount], unsigned int step, bool is_last,
                                            Patience& patience) {
  typename Transport::Raw raw[kCount];
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int j = 0; j < kCount; ++j) raw[j] = Transport::Load(slot(j));
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (sends(j) && !Transport::IsThere(raw[j])) missing = j;
    }
    if (missing < 0) break;
    if (polls % 1024 == 0 && patience.IsOver(from(missing), step)) return false;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (!sends(j)) continue;
    if (!Transport::Complete(slot(j), raw[j], from(j), step, patience)) return false;
    values[j] = Transport::Value(raw[j]);
    Transport::Clear(slot(j));
  }
  if (is_last) return true;
  bool is_clear = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) raw[j] = Transport::Load(slot(j));
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (sends(j) && Transport::IsThere(raw[j])) is_clear = false;
  }
  // Never so: a peer that wrote again has broken the protocol.
  if (!is_clear) patience.Fail(kProtocol, from(0), step);
  return is_clear;
}

// The same for all peers of `rank`.
template <typename SlotOf, typename Sends>
__device__ __forceinline__ bool Receive(SlotOf slot, Sends sends, Pack (&values)[kPeers], int rank,
                                        unsigned int step, bool is_last, Patience& patience) {
  return ReceiveFrom([&](int q) { return PeerAt(q, rank); }, slot, sends, values, step, is_last,
                     patience);
}

#endif

// For when every rank sends.
struct Everybody {
  __device__ __forceinline__ bool operator()(int /*j*/) const { return true; }
};

// One launch of a kernel: where its threads stand in the work, and its place in the count of steps.
class Launch {
 public:
  __device__ __forceinline__ explicit Launch(const KernelArguments& a)
      : arguments_(a),
        control_(reinterpret_cast<ArenaControl*>(a.arena[a.rank])),
        step_(*const_cast<volatile unsigned int*>(&control_->step)) {}

  __device__ __forceinline__ unsigned int step() const { return step_; }
  __device__ __forceinline__ void NextStep() { step_ = step_ + 1 == kStepsEnd ? 0 : step_ + 1; }

  __device__ __forceinline__ unsigned int threads() const { return gridDim.x * blockDim.x; }
  __device__ __forceinline__ unsigned int thread() const {
    return blockIdx.x * blockDim.x + threadIdx.x;
  }

  // Scratch of `rank` for this step.
  __device__ __forceinline__ unsigned char* Scratch(int rank) const {
    return arguments_.arena[rank] + Transport::kBegin + step_ % kStepBuffers * Transport::kBytes;
  }

  // By every thread once, after its first packs are on their way: from here on no thread of this
  // block reads the count of steps again. Early, so that the answer of the memory is there at the
  // end.
  __device__ __forceinline__ void Arrive() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    arrived_ = gridDim.x > 1 ? atomicAdd(&control_->arrived_blocks, 1u) : 0u;
  }

  // By every thread at its end. The block that arrived last hands the count on to the next launch.
  __device__ __forceinline__ void End() {
    if (threadIdx.x != 0 || arrived_ + 1 != gridDim.x) return;
    control_->arrived_blocks = 0;
    control_->step = step_;
  }

 private:
  const KernelArguments& arguments_;
  ArenaControl* control_;
  unsigned int step_;
  // Blocks before this one; a launch without data has no Arrive and leaves the count alone.
  unsigned int arrived_ = ~0u;
};

}  // namespace cotune::cuda
