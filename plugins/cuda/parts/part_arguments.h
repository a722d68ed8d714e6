// The arguments of a part's kernel. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_

#include <cstdint>
#include <span>

#include "plugins/cuda/kernels/part_abi.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

using AnyPartArguments = PartArguments<kPartOperandsMax>;

// What all launches of a program have: its rows.
AnyPartArguments ArgumentsOf(const sdk::Program& program);

// Adds the operands of one launch; allocates nothing. alignments: see VectorAlignments.
void SetOperands(std::span<const uint32_t> alignments, int input_count, const void* const* inputs,
                 void* const* outputs, AnyPartArguments& arguments);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_ARGUMENTS_H_
