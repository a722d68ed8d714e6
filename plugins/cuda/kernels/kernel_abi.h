// What host code and kernels have in common: arguments, failure record, layout of the arena.
// Included by C++, by NVRTC and by the runner on the CPU; includes nothing.
#ifndef COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_
#define COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_

namespace cotune::cuda {

constexpr int kRanksMax = 8;

enum FailureKind : int { kNoFailure = 0, kTimeout = 1, kAborted = 2, kProtocol = 3 };

// The first failure of this rank's kernels, in host memory that the device maps. All zero: none.
struct FailureRecord {
  unsigned int is_set;  // 1 once the fields below are written
  int kind;             // FailureKind
  int peer;             // rank that was waited for
  unsigned int step;
  unsigned int block;
  unsigned int reserved[3];
};

// Written by the host to end every wait; in host memory that the device maps, read seldom.
struct AbortWord {
  unsigned int value;  // 0: go on
};

// The only parameter of every kernel.
struct KernelArguments {
  const void* send;
  void* recv;
  unsigned long long count;         // elements, as in the ABI's table
  unsigned char* arena[kRanksMax];  // of each rank, as mapped in this process
  FailureRecord* failure;
  const AbortWord* abort;
  unsigned long long timeout_ns;  // from the kernel's start on
  int rank;
  int world_size;
  int root;
  int reserved;
};

// ---- The arena: device memory of each rank, mapped by all ----
//
// Scratch is cut into kStepBuffers parts, used in turn by steps. A step is one exchange of every
// thread with the thread of the same index on every peer; a launch takes some consecutive steps.
// Readers put scratch back into its first state (kSentinelByte or zero) as they read, so that data
// itself says when it is there. Before a rank writes into the scratch of step s, every peer must
// have done with step s - kStepBuffers:
//  - Within a launch all steps but the last are full. A thread that is done with step s - 1 has
//    heard, directly or through a peer, from that thread of every rank in step s - 1, which had
//    then done with step s - 2.
//  - At the end of a launch every rank has heard from every other in that launch, so every launch
//    before it is done everywhere.
// Only steps s - 1 and s - 2 of one launch can so be unfinished on a peer: three parts are enough,
// whatever the grids and the kernels of the launches. Done with a step means that the slots are
// seen empty, see Receive.

constexpr unsigned int kStepBuffers = 3;
// Steps are counted up to a multiple of kStepBuffers and then from 0 again.
constexpr unsigned int kStepsEnd = kStepBuffers << 29;

struct ArenaControl {
  unsigned int step;            // of the next launch; the same on all ranks
  unsigned int arrived_blocks;  // of the launch that runs
};

struct ByteRange {
  unsigned long long begin;
  unsigned long long end;
};

constexpr unsigned long long kControlBytes = 64ull << 10;
// Of one step. Words of "lamport" scratch begin as 0xFFFFFFFF, those of "ll" scratch as zero.
constexpr unsigned long long kLamportBytes = 16ull << 20;
constexpr unsigned long long kLlBytes = 8ull << 20;
constexpr unsigned long long kLamportBegin = kControlBytes;
constexpr unsigned long long kLlBegin = kLamportBegin + kStepBuffers * kLamportBytes;
constexpr unsigned long long kArenaBytes = kLlBegin + kStepBuffers * kLlBytes;

// What is filled with 0xFF when a group is made; all else with zero.
constexpr ByteRange kSentinelRanges[] = {{kLamportBegin, kLlBegin}};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_ABI_H_
