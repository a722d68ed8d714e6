// Messages from rank to rank through queues of slots, with flags that count and credit from the
// reader. The argument is in kernel_abi.h.
#pragma once

#include "call_guard.cuh"

namespace cotune::cuda {

__device__ __forceinline__ QueueWords* QueueWordsOf(const KernelArguments& a, int rank) {
  return reinterpret_cast<QueueWords*>(a.arena[rank] + kQueueWordsBegin) + blockIdx.x;
}

// In the arena of `rank`: where a message of `source` lies.
__device__ __forceinline__ unsigned char* QueueSlot(const KernelArguments& a, int rank, int source,
                                                    unsigned int message) {
  // Sources in ascending order without the rank itself.
  const unsigned int place = source < rank ? source : source - 1;
  const unsigned int slot = message % kQueueSlots;
  return a.arena[rank] + kQueuesBegin + blockIdx.x * kQueueBlockBytes +
         (place * kQueueSlots + slot) * QueueSlotBytes(COTUNE_WORLD_SIZE);
}

// One end of a queue, as each thread of the block holds it. An end without a peer is never in use.
class QueueEnd {
 public:
  __device__ __forceinline__ QueueEnd(int peer, unsigned int first)
      : peer_(peer), message_(first), is_used_(peer >= 0) {}

  // Whether the steps from now on take or send a message here.
  __device__ __forceinline__ void Use(bool is_used) { is_used_ = is_used && peer_ >= 0; }
  __device__ __forceinline__ bool is_used() const { return is_used_; }
  __device__ __forceinline__ int peer() const { return peer_; }
  __device__ __forceinline__ unsigned int message() const { return message_; }
  __device__ __forceinline__ void Next() { message_ += is_used_ ? 1 : 0; }

 protected:
  // How far the other end's count is ahead of this one's.
  __device__ __forceinline__ int Behind(unsigned long long count) const {
    return static_cast<int>(static_cast<unsigned int>(count) - message_);
  }

 private:
  int peer_;
  unsigned int message_;  // the next one
  bool is_used_;
};

// The end of a queue at which messages of `peer` arrive; -1: of nobody.
class Inlet : public QueueEnd {
 public:
  __device__ __forceinline__ Inlet(const KernelArguments& a, int peer)
      : QueueEnd(peer, peer < 0 ? 0 : static_cast<unsigned int>(*CountAt(a, peer))),
        arguments_(a) {}

  __device__ __forceinline__ const unsigned char* Slot() const {
    return QueueSlot(arguments_, arguments_.rank, peer(), message());
  }
  __device__ __forceinline__ bool IsReady() const {
    const QueueWords* words = QueueWordsOf(arguments_, arguments_.rank);
    return Behind(LoadAcquire(&words->sent[peer()])) > 0;
  }
  __device__ __forceinline__ void SetFlag() const {
    StoreRelease(&QueueWordsOf(arguments_, peer())->taken[arguments_.rank], message() + 1);
  }
  __device__ __forceinline__ void Keep() const {
    if (peer() >= 0) *CountAt(arguments_, peer()) = message();
  }

 private:
  static __device__ __forceinline__ volatile unsigned long long* CountAt(const KernelArguments& a,
                                                                         int peer) {
    return &QueueWordsOf(a, a.rank)->taken_here[peer];
  }
  const KernelArguments& arguments_;
};

// The end of a queue at which messages to `peer` leave; -1: to nobody.
class Outlet : public QueueEnd {
 public:
  __device__ __forceinline__ Outlet(const KernelArguments& a, int peer)
      : QueueEnd(peer, peer < 0 ? 0 : static_cast<unsigned int>(*CountAt(a, peer))),
        arguments_(a) {}

  __device__ __forceinline__ unsigned char* Slot() const {
    return QueueSlot(arguments_, peer(), arguments_.rank, message());
  }
  __device__ __forceinline__ bool IsReady() const {
    const QueueWords* words = QueueWordsOf(arguments_, arguments_.rank);
    return Behind(LoadAcquire(&words->taken[peer()])) > -static_cast<int>(kQueueSlots);
  }
  __device__ __forceinline__ void SetFlag() const {
    StoreRelease(&QueueWordsOf(arguments_, peer())->sent[arguments_.rank], message() + 1);
  }
  __device__ __forceinline__ void Keep() const {
    if (peer() >= 0) *CountAt(arguments_, peer()) = message();
  }

 private:
  static __device__ __forceinline__ volatile unsigned long long* CountAt(const KernelArguments& a,
                                                                         int peer) {
    return &QueueWordsOf(a, a.rank)->sent_here[peer];
  }
  const KernelArguments& arguments_;
};

// The work of a block on several ends at once.
class Queues {
 public:
  __device__ __forceinline__ Queues(const KernelArguments& a, SpinBudget& budget)
      : budget_(budget),
        guard_(a, budget, LoadWord(&ControlOf(a, a.rank)->poison), NextToLastWarp()) {}

  // By all threads in front of the first wait, behind what reads the counts of the ends: the launch
  // waits for all of that once. False, for all of them alike (see Rounds::Begin): the group has
  // failed.
  __device__ __forceinline__ bool Begin() { return __syncthreads_or(guard_.Begin(0) ? 0 : 1) == 0; }

  // By all threads: until there is a message in each inlet and a free slot behind each outlet that
  // is in use. False: gave up. Threads at the end of the block wait, each for one end, so that
  // those that set flags need not do both one after the other.
  template <int kInlets, int kOutlets>
  __device__ __forceinline__ bool Wait(const Inlet (&from)[kInlets], const Outlet (&to)[kOutlets]) {
    const int q = static_cast<int>(blockDim.x - 1 - threadIdx.x);
    // A look in passing: this rank may be ahead of those that it does not wait for.
    const unsigned long long heard = guard_.Heard();
    bool gives_up = false;
#pragma unroll
    for (int e = 0; e < kInlets; ++e) gives_up = gives_up || (q == e && !WaitFor(from[e]));
#pragma unroll
    for (int e = 0; e < kOutlets; ++e) gives_up = gives_up || (q == kInlets + e && !WaitFor(to[e]));
    if (guard_.IsSame(heard)) guard_.SetCompared();
    return __syncthreads_or(gives_up) == 0;
  }

  // By all threads, when they have read and written the slots: says so to the other ends.
  template <int kInlets, int kOutlets>
  __device__ __forceinline__ void Advance(Inlet (&from)[kInlets], Outlet (&to)[kOutlets]) {
    __syncthreads();
    const int q = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int e = 0; e < kOutlets; ++e) {
      if (q == e && to[e].is_used()) to[e].SetFlag();
      to[e].Next();
    }
#pragma unroll
    for (int e = 0; e < kInlets; ++e) {
      if (q == kOutlets + e && from[e].is_used()) from[e].SetFlag();
      from[e].Next();
    }
  }

  // By all threads, when the launch is done with these ends.
  template <int kInlets, int kOutlets>
  __device__ __forceinline__ void Keep(const Inlet (&from)[kInlets], const Outlet (&to)[kOutlets]) {
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int e = 0; e < kInlets; ++e) from[e].Keep();
#pragma unroll
    for (int e = 0; e < kOutlets; ++e) to[e].Keep();
  }

  // By all threads at the end of the launch.
  __device__ __forceinline__ void End() {
    guard_.Count();
    guard_.Compare(0);
  }

 private:
  template <class End>
  __device__ __forceinline__ bool WaitFor(const End& end) {
    if (!end.is_used()) return true;
    for (unsigned int polls = 1; !end.IsReady(); ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      if (budget_.IsOverOrOtherCall(end.peer(), end.message())) return false;
    }
    return true;
  }

  SpinBudget& budget_;
  CallGuard guard_;
};

}  // namespace cotune::cuda
