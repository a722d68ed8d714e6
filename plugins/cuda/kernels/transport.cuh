// Data that says itself when it is there: no flag to wait for, no fence, one way over the link.
// Sendable(p) is p as the peers will see it; a rank uses that for its own part too, so that all
// have the same bits.
#pragma once

#include "call_guard.cuh"

namespace cotune::cuda {

// Blocks that a multiprocessor has room for at once; 0: as the compiler likes. With one peer
// kernels need so few registers that two large ones fit, or four smaller ones. On H200s that is as
// fast or up to 5 % faster, but for broadcast, which goes without, and all_reduce of 64 MB (2 %
// slower).
constexpr int kResidentBlocks = COTUNE_WORLD_SIZE == 2 ? 1024 / COTUNE_THREADS : 0;

#if defined(COTUNE_TRANSPORT_LAMPORT)

// For floats: empty words are one NaN bit pattern, which a sender replaces by another NaN. Each
// word is looked at, so that words of one store may arrive one by one.
struct Transport {
  static constexpr unsigned long long kBegin = kScratchBegin;
  static constexpr unsigned long long kBytes = kScratchBytes;
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
  static constexpr bool kHasEscapes = false;
  static __device__ __forceinline__ bool IsPlain(const Raw& raw) { return IsThere(raw); }
  static __device__ __forceinline__ bool Complete(unsigned char* /*slot*/, Raw& /*raw*/,
                                                  int /*peer*/, unsigned int /*step*/,
                                                  SpinBudget& /*budget*/) {
    return true;
  }
  static __device__ __forceinline__ Pack Value(const Raw& raw) { return raw.pack; }
  static __device__ __forceinline__ void Clear(unsigned char* slot) {
    StoreRelaxed(slot, Pack{{kEmpty, kEmpty, kEmpty, kEmpty}});
  }
};

#elif defined(COTUNE_TRANSPORT_ESCAPE)

// For any bits, and nothing but them on the way: a half of a pack (eight bytes, which arrive whole)
// is empty when it is all ones. One that would look empty travels as kEscaped, and so does one that
// is kEscaped itself; which of the two it was is said in a word beside the slot, that the reader
// looks at only then. A mask makes both rare. So are halves whose upper word is all ones, as that
// of both is: all others are neither, which takes one comparison.
struct Transport {
  static constexpr unsigned long long kBegin = kScratchBegin + kEscapeOffset;
  static constexpr unsigned long long kBytes = kScratchBytes;
  static constexpr int kSlotBytes = 16;
  static constexpr unsigned int kAllOnes = ~0u;
  static constexpr unsigned int kEscaped = kAllOnes - 1;  // the lower word
  static constexpr bool kHasEscapes = true;
  static constexpr unsigned long long kNothing = ~0ull;  // beside a slot
  struct Raw {
    Pack pack;  // as on its way
  };

  static __device__ __forceinline__ Pack Sendable(const Pack& p) { return p; }
  static __device__ __forceinline__ void Send(unsigned char* slot, const Pack& p) {
    Pack masked = Masked(p);
    if (IsPlain({masked})) {
      StoreRelaxed(slot, masked);
      return;
    }
    const bool low = masked.word[1] == kAllOnes && masked.word[0] >= kEscaped;
    const bool high = masked.word[3] == kAllOnes && masked.word[2] >= kEscaped;
    const unsigned long long were_empty = (low && masked.word[0] == kAllOnes ? 1u : 0u) |
                                          (high && masked.word[2] == kAllOnes ? 2u : 0u);
    if (low) masked.word[0] = kEscaped;
    if (high) masked.word[2] = kEscaped;
    StoreRelaxed(slot, masked);
    // They may arrive in either order.
    if (low || high) StoreRelaxedHalf(slot - kEscapeOffset, were_empty);
  }
  static __device__ __forceinline__ Raw Load(const unsigned char* slot) {
    return {LoadRelaxed(slot)};
  }
  // There, and nothing is beside it.
  static __device__ __forceinline__ bool IsPlain(const Raw& raw) {
    return raw.pack.word[1] != kAllOnes && raw.pack.word[3] != kAllOnes;
  }
  static __device__ __forceinline__ bool IsThere(const Raw& raw) {
    const unsigned int* w = raw.pack.word;
    return (w[0] & w[1]) != kAllOnes && (w[2] & w[3]) != kAllOnes;
  }
  // Once it is there: waits for the word beside it, if it has one, and takes that out. False: gave
  // up.
  static __device__ __forceinline__ bool Complete(unsigned char* slot, Raw& raw, int peer,
                                                  unsigned int step, SpinBudget& budget) {
    unsigned int* w = raw.pack.word;
    const bool low = w[1] == kAllOnes && w[0] == kEscaped;
    const bool high = w[3] == kAllOnes && w[2] == kEscaped;
    if (!low && !high) return true;
    const unsigned long long were_empty =
        TakeBeside(budget.arguments(), slot - kEscapeOffset, peer, step, budget.number());
    if (were_empty == kNothing) return false;
    if (low && (were_empty & 1) != 0) w[0] = kAllOnes;
    if (high && (were_empty & 2) != 0) w[2] = kAllOnes;
    return true;
  }
  static __device__ __forceinline__ Pack Value(const Raw& raw) { return Masked(raw.pack); }
  static __device__ __forceinline__ void Clear(unsigned char* slot) {
    StoreRelaxed(slot, Pack{{kAllOnes, kAllOnes, kAllOnes, kAllOnes}});
  }

 private:
  static __device__ __forceinline__ Pack Masked(const Pack& p) {
    constexpr auto kLow = static_cast<unsigned int>(kEscapeMask);
    constexpr auto kHigh = static_cast<unsigned int>(kEscapeMask >> 32);
    return Pack{{p.word[0] ^ kLow, p.word[1] ^ kHigh, p.word[2] ^ kLow, p.word[3] ^ kHigh}};
  }
  // kNothing: gave up. It is read back until it is seen empty, as slots are before another step.
  // Not inlined, since it is seldom called and needed at each wait.
  static __device__ __noinline__ unsigned long long TakeBeside(const KernelArguments& a,
                                                               unsigned char* word, int peer,
                                                               unsigned int step,
                                                               unsigned int number) {
    SpinBudget budget(a);
    budget.set_number(number);
    unsigned long long value = LoadRelaxedHalf(word);
    for (unsigned int polls = 1; value == kNothing; ++polls) {
      if (polls % kPollsPerLook == 0 && budget.IsOverOrOtherCall(peer, step)) return kNothing;
      value = LoadRelaxedHalf(word);
    }
    StoreRelaxedHalf(word, kNothing);
    if (LoadRelaxedHalf(word) != kNothing) {
      // Never so: a peer that wrote again has broken the protocol.
      budget.Fail(kProtocol, peer, step);
      return kNothing;
    }
    return value;
  }
};

#else
#error "compile with -DCOTUNE_TRANSPORT_..."
#endif

// As readers leave a slot.
__device__ __forceinline__ bool IsEmpty(const Pack& p) {
  return (p.word[0] & p.word[1] & p.word[2] & p.word[3]) == ~0u;
}

// One launch of a kernel: where its threads stand in the work, and its place in the count of steps.
class Launch {
 public:
  __device__ __forceinline__ Launch(const KernelArguments& a, SpinBudget& budget)
      : Launch(a, budget, LoadWordPair(ControlAtBegin(a))) {}

  __device__ __forceinline__ CallGuard& guard() { return guard_; }

  // By every thread behind its first sends and in front of its first wait. False: the group has
  // failed.
  __device__ __forceinline__ bool Begin() { return guard_.Begin(step_); }

  __device__ __forceinline__ unsigned int step() const { return step_; }
  __device__ __forceinline__ void NextStep() { step_ = step_ + 1 == kStepsEnd ? 0 : step_ + 1; }

  __device__ __forceinline__ unsigned int threads() const { return gridDim.x * blockDim.x; }
  __device__ __forceinline__ unsigned int thread() const {
    return blockIdx.x * blockDim.x + threadIdx.x;
  }

  // Scratch of `rank` for this step. In a group that has failed it is that of this rank: peers may
  // still read what it sent before, and nobody reads what a rank sends to itself. (A condition at
  // each store instead of one on the address took 0.12 us a call.)
  __device__ __forceinline__ unsigned char* Scratch(int rank) const {
    unsigned char* const peer = arguments_.arena[rank];
    unsigned char* const own = arguments_.arena[arguments_.rank];
    return (guard_.IsOpen() ? peer : own) + Transport::kBegin +
           step_ % kStepBuffers * Transport::kBytes;
  }

  // By every thread once: from here on no thread of this block reads the count of steps again.
  // Early, so that the answer of the memory is there at the end; behind the first packs, but where
  // many of them would keep it waiting.
  __device__ __forceinline__ void Arrive() {
    __syncthreads();
    guard_.Count();
    if (threadIdx.x != 0) return;
    arrived_ = gridDim.x > 1 ? atomicAdd(&control()->arrived_blocks, 1u) : 0u;
  }

  // By every thread at its end. The block that arrived last hands the count on to the next launch.
  __device__ __forceinline__ void End() {
    if (threadIdx.x == 0 && arrived_ + 1 == gridDim.x) {
      StoreWord(&control()->arrived_blocks, 0);
      StoreWord(&control()->step, step_);
    }
    guard_.Compare(step_);  // by threads that had no data
  }

 private:
  // state: the step and the poison. One access: with three of them all warps of a large launch wait
  // for the same line, 0.2 us of 5.
  __device__ __forceinline__ Launch(const KernelArguments& a, SpinBudget& budget,
                                    const WordPair& state)
      : arguments_(a), step_(state.first), guard_(a, budget, state.second, 0) {}

  __device__ __forceinline__ ArenaControl* control() const {
    return ControlOf(arguments_, arguments_.rank);
  }

  const KernelArguments& arguments_;
  unsigned int step_;
  CallGuard guard_;
  // Blocks before this one; a launch without data has no Arrive and leaves the count alone.
  unsigned int arrived_ = ~0u;
};

// Kernels for small calls wait for records as for data, which takes no time of its own. Those for
// large ones have many steps, and only look: with more in the loop they take 2 to 4 % longer. So do
// those of all_to_all and all_gather, which have the block that stays on this rank to store while a
// record is on its way: 1 to 4 % less for small calls (docs/decisions/0015).
#if defined(COTUNE_COLLECTIVE_ALL_TO_ALL) || defined(COTUNE_COLLECTIVE_ALL_GATHER)
constexpr bool kComparesInLoop = false;
#else
constexpr bool kComparesInLoop = COTUNE_UNROLL == 1;
#endif

// Waits for one pack of each of some ranks in this rank's scratch, takes them out and leaves the
// slots empty. slot(j) is that of rank from(j), of those with sends(j). All loads are in flight at
// once. False: gave up.
//
// compares: the thread also looks at its peer's record, unless it has compared the calls; for the
// first wait of a step, and a constant, as the loop is shorter without.
//
// is_last: no step of this launch follows. Before one that follows, the slots must be seen empty in
// memory: a peer that hears from this thread in the next step may then write into them, and nothing
// else keeps its data from arriving before the store that empties them. Reading back what was
// stored waits for that, at a fraction of what a fence costs. At the end of a launch the hardware
// does it.
template <int kCount, typename From, typename SlotOf, typename Sends>
__device__ __forceinline__ bool ReceiveFrom(From from, SlotOf slot, Sends sends,
                                            Pack (&values)[kCount], Launch& launch, bool is_last,
                                            SpinBudget& budget, bool compares = false) {
  const unsigned int step = launch.step();
  CallGuard& guard = launch.guard();
  typename Transport::Raw raw[kCount];
  unsigned long long heard = compares && !kComparesInLoop ? guard.Heard() : 0;
  for (unsigned int polls = 1;; ++polls) {
    int missing = -1;
#pragma unroll
    for (int j = 0; j < kCount; ++j) raw[j] = Transport::Load(slot(j));
    if (compares && kComparesInLoop) heard = guard.Heard();
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (sends(j) && !Transport::IsPlain(raw[j])) missing = j;
    }
    if (missing < 0 && (!compares || !kComparesInLoop || guard.IsSame(heard))) break;
    // All else is done seldom: another form of this loop, with more in it, took 0.1 us a call and
    // more.
    if (polls % (Transport::kHasEscapes ? 16 : kPollsPerLook) != 0) continue;
    if constexpr (Transport::kHasEscapes) {
      missing = -1;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (sends(j) && !Transport::IsThere(raw[j])) missing = j;
      }
      if (missing < 0 && (!compares || !kComparesInLoop || guard.IsSame(heard))) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          if (sends(j) && !Transport::Complete(slot(j), raw[j], from(j), step, budget)) {
            return false;
          }
        }
        break;
      }
    }
    const int peer = missing < 0 ? -1 : from(missing);
    if (polls % kPollsPerLook != 0) continue;
    if (guard.IsOver(guard.Heard(), peer, step)) return false;
  }
  if (compares && guard.IsSame(heard)) guard.SetCompared();
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (!sends(j)) continue;
    values[j] = Transport::Value(raw[j]);
    Transport::Clear(slot(j));
  }
  if (is_last) return true;
  bool is_clear = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) raw[j] = Transport::Load(slot(j));
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (sends(j) && !IsEmpty(raw[j].pack)) is_clear = false;
  }
  // Never so: a peer that wrote again has broken the protocol.
  if (!is_clear) budget.Fail(kProtocol, from(0), step);
  return is_clear;
}

// The same for all peers of `rank`.
template <typename SlotOf, typename Sends>
__device__ __forceinline__ bool Receive(SlotOf slot, Sends sends, Pack (&values)[kPeers], int rank,
                                        Launch& launch, bool is_last, SpinBudget& budget,
                                        bool compares = false) {
  return ReceiveFrom([&](int q) { return PeerAt(q, rank); }, slot, sends, values, launch, is_last,
                     budget, compares);
}

// For when every rank sends.
struct Everybody {
  __device__ __forceinline__ bool operator()(int /*j*/) const { return true; }
};

}  // namespace cotune::cuda
