// The instructions of element programs: one operation over a block of elements, with the widest
// vectors of this processor.
#ifndef COTUNE_PLUGINS_HOST_ELEMENT_KERNELS_H_
#define COTUNE_PLUGINS_HOST_ELEMENT_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugins/sdk/program.h"

namespace cotune::host {

// The type that a value is computed in: f32 for all floats but f64, and each integer for itself.
enum class Lane : uint8_t { kF32, kF64, kI32, kI64, kU8, kI8 };
Lane LaneOf(sdk::ValueDtype dtype);
size_t LaneBytes(Lane lane);

// Registers are padded to a multiple of this many bytes, and an instruction may compute whole
// vectors of them. A value that is the same for a whole row fills one such piece.
inline constexpr size_t kSplatBytes = 128;
// A multiple of the elements of every vector: an instruction of so many touches nothing beyond.
inline constexpr size_t kWholeElements = 128;
inline constexpr size_t kLeafColumns = 8;

// One instruction. Registers are arrays of lanes. A repeated operand (step 0) is one splat, and is
// read again for each vector.
struct ElementArguments {
  void* to = nullptr;
  const void* from[3] = {};
  size_t step[3] = {};  // 1: an array; 0: a splat
  size_t count = 0;     // elements; loads and stores touch no memory beyond them
  double constants[2] = {};
};

// The result depends on operands alone, and not on the width of vectors, but for exp, log, tanh and
// what is made of them. exp, log, tanh and sigmoid are within 4 ulp, silu within 5; gelu adds 2 ulp
// of its operand, where 1 + erf or 1 + tanh cancel. Any thread.
using ElementKernel = void (*)(const ElementArguments& arguments);

// COTUNE_NODE_* from add to where, but for clamp's constants in the lane that the operands (of
// `where`: the last two) have. Null: the operation does not compute with this lane.
ElementKernel FindElementKernel(uint32_t kind, Lane lane);
// From lanes of `from` to lanes of `to`. `to_odd`: the value is rounded to fewer bits afterwards,
// so that the last bit of an inexact f32 is set, which makes the second rounding that of the exact
// value.
ElementKernel FindCastKernel(Lane from, Lane to, bool to_odd);
// Rounds f32 lanes to what a dtype can hold; null for dtypes that hold every lane.
ElementKernel FindRoundKernel(sdk::ValueDtype dtype);
ElementKernel FindLoadKernel(sdk::ValueDtype dtype);   // elements in memory to lanes
ElementKernel FindStoreKernel(sdk::ValueDtype dtype);  // lanes to elements in memory
// The same for lanes that hold numbers of the dtype.
ElementKernel FindStoreRoundedKernel(sdk::ValueDtype dtype);
// Copies elements, with all bits that their dtype has.
ElementKernel FindCopyKernel(sdk::ValueDtype dtype);
// Fills a splat with the one lane at from[0].
ElementKernel FindSplatKernel(Lane lane);

// Two operations on f32 lanes and the conversions around them as one instruction, which has the
// bits of the separate ones.
struct JoinedOperations {
  uint32_t first = 0;   // COTUNE_NODE_ADD, SUB or MUL of the operands 0 and 1; 0: not joined
  uint32_t second = 0;  // 0, COTUNE_NODE_RELU, or COTUNE_NODE_MUL by the operand 2
  // kF32: lanes, else the elements that are in memory.
  std::array<sdk::ValueDtype, 3> from = {sdk::ValueDtype::kF32, sdk::ValueDtype::kF32,
                                         sdk::ValueDtype::kF32};
  sdk::ValueDtype to = sdk::ValueDtype::kF32;
  // The dtype that lanes are rounded to before they are stored; kF32: they are not. It is that of
  // `to` if both are narrow.
  sdk::ValueDtype rounded = sdk::ValueDtype::kF32;
};
// Null: there is no such instruction.
ElementKernel FindJoinedKernel(const JoinedOperations& operations);

// Row reductions have one tree, which depends on the columns alone. A leaf is up to 8 columns in
// order. The leaves are padded to a power of two and folded from the highest index bit down. The
// padding is the identity (-0 for a sum, -infinity for a maximum), so that it changes no value.
// kind: COTUNE_NODE_ROW_SUM or COTUNE_NODE_ROW_MAX; lane: kF32 or kF64, else null.
ElementKernel FindLeafKernel(uint32_t kind, Lane lane);  // `count` lanes to ceil(count / 8) leaves
// The leaves of the sum of the squares of f32 lanes.
ElementKernel FindSquareLeafKernel();
// `count` leaves at to; the array has room for the next power of two and at least for a splat, and
// ends as a splat of the result.
ElementKernel FindFoldKernel(uint32_t kind, Lane lane);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_KERNELS_H_
