// What one kernel is compiled from.
#ifndef COTUNE_PLUGINS_CUDA_KERNEL_SPEC_H_
#define COTUNE_PLUGINS_CUDA_KERNEL_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/border/problem.h"
#include "plugins/cuda/nvrtc.h"

namespace cotune::cuda {

enum class Algorithm : uint8_t { kOneShot, kTwoShot, kDirect };
// How packs travel: see kernels/transport.cuh for the first two, kernels/bits.cuh and
// kernels/flagged.cuh for the next; the last one leaves them in the callers' registered buffers.
enum class Transport : uint8_t { kLamport, kLl, kBits, kFlagged, kZeroCopy };

struct KernelSpec {
  border::Collective collective = border::Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kOneShot;
  Transport transport = Transport::kLamport;
  border::ElementType type = border::ElementType::kF32;
  border::Reduction reduction = border::Reduction::kSum;  // of collectives that reduce
  int world_size = 2;
  int threads = 512;  // of a block
  int unroll = 1;     // packs of each thread at once
  bool uses_pdl = false;
};

const char* Name(Algorithm algorithm);  // "one_shot", "two_shot", "direct"
const char* Name(Transport transport);  // "lamport", "ll", "bits", "flagged", "zero_copy"

// The symbol of the kernel in every compiled unit.
inline constexpr char kKernelSymbol[] = "cotune_kernel";

// The file that it is compiled from, with the headers that it includes.
SourceText SourceOf(const KernelSpec& spec);
// Options, -D most of them: all that makes it different from others of the same file. Equal
// options, equal code.
std::vector<std::string> NvrtcOptions(const KernelSpec& spec);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNEL_SPEC_H_
