// One kernel launch on the CPU: blocks of fibers with a barrier each.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_BLOCK_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_BLOCK_H_

#include <atomic>
#include <cstdint>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda::cpu {

using KernelFunction = void (*)(KernelArguments arguments);
// A kernel with other arguments.
using PlainFunction = void (*)(const void* arguments);

struct LaunchShape {
  unsigned int blocks = 1;
  unsigned int threads = 1;
  unsigned int resident_blocks = 1u << 30;  // at most so many at once, in order of their index
  unsigned int block_bytes = 0;             // of memory that the threads of a block share
  unsigned int cluster_blocks = 1;          // divides `blocks`; those of a cluster start together
  bool has_late_warps = false;              // now and then one is far behind after a barrier
};

// From a fiber: runs the kernel to its end, as the next kernel of a stream sees it.
void RunKernel(KernelFunction kernel, const KernelArguments& arguments, const LaunchShape& shape);
void RunKernel(PlainFunction kernel, const void* arguments, const LaunchShape& shape);

// From a thread of a kernel: the barrier of its block. Threads that have ended are not waited for.
// Returns whether any thread gave true.
bool SyncBlock(bool value);

// ---- From a thread of a kernel: its block and its warp. All lanes of a warp take part. ----

// The block's memory, filled with noise when the block begins.
unsigned char* BlockMemoryOf(unsigned int bytes);
// The value that the lane gives whose index is this one's with the bits of `offset` turned over.
unsigned long long ExchangeInWarp(unsigned long long value, unsigned int offset);
// Orders what lanes did before it in front of what they do behind it.
void SyncLanes();

// ---- From a thread of a kernel: the blocks of its cluster ----

// The barrier of the cluster, in two halves. The second one returns when all threads of the cluster
// have called the first one.
void ArriveAtCluster();
void WaitForCluster();
// The same place in the memory of another block, which must not have ended.
void* InBlockOfCluster(unsigned int block, void* at);
// Counts bytes at a gate: those that the block expects (`expects`), or those that have come.
void CountAtGate(void* gate, unsigned int bytes, bool expects);
void WaitAtGate(void* gate, unsigned int parity);

// Reads of host memory, which is slow for a device, by threads of kernels.
inline std::atomic<uint64_t> host_word_loads{0};

// ---- Stores that others need not see at once ----

struct DelayedStore {
  void* to;
  unsigned int word[4];
};
using StoreWriter = void (*)(const DelayedStore& store);

// From a thread of a kernel: the store is done now or, by chance, later: at the latest when a
// thread of its block that it happened before calls FinishStores, or when the block ends.
void DelayStore(const DelayedStore& store, StoreWriter write);
// Completes the earlier stores: all of this thread, and those of its block before the last barrier.
void FinishStores();

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_BLOCK_H_
