#include "plugins/cuda/parts/part_arguments.h"

#include <cstddef>
#include <cstring>

namespace cotune::cuda {

static_assert(COTUNE_PROGRAM_INPUTS_MAX + COTUNE_PROGRAM_OUTPUTS_MAX <= kPartOperandsMax);
static_assert(COTUNE_PROGRAM_OUTPUTS_MAX <= kPartStagesMax);
static_assert(sizeof(StagedPartArguments<3, 2>) == sizeof(PartArguments<4>));
static_assert(sizeof(AnyPartArguments) ==
              sizeof(StagedPartArguments<kPartOperandsMax, kPartStagesMax>));

AnyPartArguments ArgumentsOf(const sdk::Program& program) {
  AnyPartArguments arguments{};
  for (const sdk::Value& value : program.values) {
    if (value.rows_kind == COTUNE_ROWS_ALL) arguments.rows = value.rows;
    if (value.rows_kind == COTUNE_ROWS_SHARE) arguments.share_rows = value.rows;
  }
  return arguments;
}

void SetOperands(std::span<const uint32_t> alignments, int input_count, const void* const* inputs,
                 void* const* outputs, AnyPartArguments& arguments) {
  const auto first_output = static_cast<size_t>(input_count);
  arguments.is_aligned = 1;
  for (size_t o = 0; o < alignments.size(); ++o) {
    void* const operand =
        o < first_output ? const_cast<void*>(inputs[o]) : outputs[o - first_output];
    if (reinterpret_cast<uintptr_t>(operand) % alignments[o] != 0) arguments.is_aligned = 0;
    arguments.operands[o] = operand;
  }
}

void SetStageEnds(std::span<const unsigned int> ends, size_t operand_count,
                  AnyPartArguments& arguments) {
  std::memcpy(&arguments.operands[operand_count], ends.data(), ends.size_bytes());
}

}  // namespace cotune::cuda
