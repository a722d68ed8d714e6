// The values of a part as text: types, literals, and the expression that computes each one. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_VALUE_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_VALUE_TEXT_H_

#include <string>

#include "plugins/sdk/program.h"

namespace cotune::cuda {

// "Bf16": the struct of kernels/part_element.cuh.
const char* DtypeText(sdk::ValueDtype dtype);
// "float": what values of the dtype are computed in.
const char* LaneText(sdk::ValueDtype dtype);
// A number in the lane of a dtype, clamped to its range and exact.
std::string LiteralText(double number, sdk::ValueDtype dtype);
// "v7".
std::string ValueName(int index);
// The value of a node from those of its operands. Reductions of columns have none.
std::string ExpressionText(const sdk::Program& program, int index);
// The same without the rounding to the value's dtype that readers of the value may need.
std::string UnroundedText(const sdk::Program& program, int index);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_VALUE_TEXT_H_
