// What a part is called with. Included by C++, by NVRTC and by the runner on the CPU; includes
// nothing.
#ifndef COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_
#define COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_

namespace cotune::cuda {

// The inputs and outputs of a program together, see COTUNE_PROGRAM_INPUTS_MAX.
constexpr int kPartOperandsMax = 128;
// A stage has at least one output, see COTUNE_PROGRAM_OUTPUTS_MAX.
constexpr int kPartStagesMax = 64;

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

// The parameter of a kernel with several stages in one launch. The blocks of a launch are shared
// out among its stages in order: stage s has the blocks from the end of the stage before it, or
// from 0, up to its own end. A stage that ends where the one before it does runs in the last block
// before its end, after the stage before it.
template <int kOperands, int kStages>
struct StagedPartArguments : PartArguments<kOperands> {
  unsigned int stage_ends[kStages];
};

// A bucket is a region of so many collectives at most.
constexpr int kPiecesMax = 16;

// The operands of one side of a bucket: those of each piece, piece by piece. The leaves of the
// pieces are numbered one after another.
template <int kOperands, int kPieces>
struct PieceArguments : PartArguments<kOperands> {
  unsigned long long first_leaves[kPieces];  // ascending
  unsigned long long elements[kPieces];
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNELS_PART_ABI_H_
