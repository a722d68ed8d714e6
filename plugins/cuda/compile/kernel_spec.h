// The input that one kernel is compiled from.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_

#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// Its texts live as long as the process.
struct KernelSpec {
  std::string_view source;  // the file in kernels/
  // How packs travel, an option that is written in capitals: see kernels/transport.cuh for
  // "lamport" and "escape", kernels/flagged.cuh for "flagged", kernels/queues.cuh for "queued".
  // "zero_copy" leaves them in the callers' registered buffers. With "copy_engine" the kernel is a
  // barrier of ranks, adds up, or copies what stays on a GPU.
  std::string_view transport;
  sdk::Collective collective = sdk::Collective::kAllReduce;
  sdk::ElementType type = sdk::ElementType::kF32;
  sdk::Reduction reduction = sdk::Reduction::kSum;  // of collectives that reduce
  int world_size = 2;
  int threads = 512;  // of a block
  int unroll = 1;     // packs of each thread at once
  bool uses_pdl = false;
  // Kernels that reduce rows: the threads of a row in each of its blocks, which are a cluster if
  // there are several (kernels/part_rows.cuh). 0: the kernel has no rows.
  int row_threads = 0;
  int row_blocks = 1;
};

// The symbol of the kernel in every compiled unit.
inline constexpr char kKernelSymbol[] = "cotune_kernel";

// All that a kernel's code depends on, but for compiler and architecture.
struct KernelUnit {
  SourceText source;
  std::vector<std::string> options;
};

// A file in kernels/ with the headers that it includes. The text is empty where no file has this
// name.
SourceText SourceOf(std::string_view file);
// The same with a generated text as program.cuh.
SourceText SourceWith(std::string_view file, std::string_view program);
inline SourceText SourceOf(const KernelSpec& spec) { return SourceOf(spec.source); }
// Options, -D most of them: all that makes it different from others of the same file. Equal
// options, equal code.
std::vector<std::string> NvrtcOptions(const KernelSpec& spec);
KernelUnit UnitOf(const KernelSpec& spec);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_SPEC_H_
