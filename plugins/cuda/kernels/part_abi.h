// What a part is called with. Included by C++, by NVRTC and by the runner on the CPU; includes
// nothing.
#ifndef COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_
#define COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_

namespace cotune::cuda {

// The inputs and outputs of a program together, see COTUNE_PROGRAM_INPUTS_MAX.
constexpr int kPartOperandsMax = 128;

// The only parameter of a part's kernel, which has as many operands as its program. The host fills
// one with the most operands, and the driver reads the beginning that the kernel has.
template <int kOperands>
struct PartArguments {
  unsigned long long rows;        // R
  unsigned long long share_rows;  // of a rank
  unsigned int launch;            // counted from 0, where one call is several launches
  unsigned int is_aligned;        // all operands that are read by leaves are aligned to vectors
  void* operands[kOperands];      // inputs, then outputs
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_
