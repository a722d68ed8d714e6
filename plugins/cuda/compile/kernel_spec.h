// What one kernel is compiled from.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

enum class Algorithm : uint8_t { kOneShot, kTwoShot, kDirect, kRing, kTree };
// How packs travel: see kernels/transport.cuh for the first two, kernels/flagged.cuh for the next;
// the fourth leaves them in the callers' registered buffers. Rings and trees have one of their own,
// kernels/queues.cuh. With the last one copy engines move the data between GPUs, and the kernel
// is a barrier of ranks, adds up, or copies what stays on a GPU.
enum class Transport : uint8_t { kLamport, kEscape, kFlagged, kZeroCopy, kQueued, kCopyEngine };

// Whether a block sends chunks of some size, which is then a parameter of the choice.
constexpr bool HasChunks(Transport transport) {
  return transport == Transport::kFlagged || transport == Transport::kQueued;
}

struct KernelSpec {
  sdk::Collective collective = sdk::Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kOneShot;
  Transport transport = Transport::kLamport;
  sdk::ElementType type = sdk::ElementType::kF32;
  sdk::Reduction reduction = sdk::Reduction::kSum;  // of collectives that reduce
  int world_size = 2;
  int threads = 512;  // of a block
  int unroll = 1;     // packs of each thread at once
  bool uses_pdl = false;
};

const char* Name(Algorithm algorithm);  // "one_shot", "two_shot", "direct", "ring", "tree"
// "lamport", "escape", "flagged", "zero_copy", "queued", "copy_engine".
const char* Name(Transport transport);

// The symbol of the kernel in every compiled unit.
inline constexpr char kKernelSymbol[] = "cotune_kernel";

// The file that it is compiled from, with the headers that it includes.
SourceText SourceOf(const KernelSpec& spec);
// Options, -D most of them: all that makes it different from others of the same file. Equal
// options, equal code.
std::vector<std::string> NvrtcOptions(const KernelSpec& spec);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_
