// The arguments of a part's kernel. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/cuda/kernels/part_abi.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// With room for the ends of stages, which follow the operands that the kernel has.
inline constexpr int kStageEndsWords =
    kPartStagesMax * sizeof(unsigned int) / static_cast<int>(sizeof(void*));
using AnyPartArguments = PartArguments<kPartOperandsMax + kStageEndsWords>;

// What all launches of a program have: its rows.
AnyPartArguments ArgumentsOf(const sdk::Program& program);

// Adds the operands of one launch; allocates nothing. alignments: see VectorAlignments.
void SetOperands(std::span<const uint32_t> alignments, int input_count, const void* const* inputs,
                 void* const* outputs, AnyPartArguments& arguments);

// Adds the ends of all stages (StageEndsOf), at the place that follows the program's operands.
void SetStageEnds(std::span<const unsigned int> ends, size_t operand_count,
                  AnyPartArguments& arguments);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_
