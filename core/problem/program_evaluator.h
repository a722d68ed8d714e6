// The reference evaluator of programs: every check of a program compares with its results. Plain
// loops over all ranks, in double and in exact integers; it shares no code with anything that runs
// programs. Pure.
//
// Rules of special values:
//   - min, max, relu, clamp and row_max give NaN when an operand is NaN. Comparisons with NaN give
//   0.
//     Of minima and maxima over ranks, of which some have NaN, nothing can be said: libraries
//     differ.
//   - The sign of a zero is not part of a value, so that a number divided by zero, and rsqrt of
//   zero,
//     may be either infinity.
//   - gelu and silu of the negative infinity may be anything: their formulas multiply it by 0.
//   - Integers wrap around in their width. The average of integers over ranks is their wrapped sum,
//     divided toward zero.
//   - A float beyond the range of f32 (f64 for f64) is infinite for the next operation. A 16-bit or
//     8-bit float beyond its own range is so only if it is rounded (below). Elsewhere it may be,
//     and nothing can be said of what is computed from it.
//
// Bounds: the error of the operands carried through the operation, and its own error in f32 (for
// f64 in f64; u is half the distance of two numbers at 1, an ulp is 2 u):
//   - add, sub, mul one rounding, none where the result is exact; div, sqrt, rsqrt 2 ulp; exp, log,
//     tanh, sigmoid, gelu and silu 4 ulp.
//   - row sums of c columns: max(4, c / 8) u x the sum of the absolute values.
//   - sums over n ranks: (n - 1) u of the dtype that travels x the sum of the absolute values.
//   - Sums over columns or ranks have no error of their own where every partial sum is exact,
//     whatever the order. Small integers are the usual case.
//   - 16-bit and 8-bit floats: half an ulp of the dtype at each node, once, as rounding twice is
//     rounding once: whether a value is rounded at its node or only as it leaves is open. But
//     outputs of the program and operands of collectives are rounded for all nodes that read them:
//     those have the rounded number, without that half ulp.
//   - Comparisons and casts whose operand lies within its bound of the place where the result
//     changes may give either result; where() with such a condition may take either operand.
//   - Literals and the constants of an operation are used as they are written or rounded to f32.
//   - Results of functions below the smallest normal number may be 0.
// quantize_scale takes at least 1e-12 for the largest magnitude of a row, and quantize clamps i8 to
// -127 to 127. layer_norm subtracts the mean before it squares: mean(x^2) - mean(x)^2 is not as
// accurate.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_EVALUATOR_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_EVALUATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/program_graph.h"

namespace cotune {

// Evaluates a program at R = `rows` on all ranks of a group. inputs[rank][input] are the bytes of
// each input; the result is [rank][output]. Compounds are evaluated by their own formulas, so that
// ProgramGraph::Lower can be checked with it. kUsage: rows that the graph cannot have in a group of
// this size, a root outside of it, or inputs of another number or size.
Result<std::vector<std::vector<EvaluatedValue>>> EvaluateProgram(
    const ProgramGraph& graph, uint64_t rows, int world_size,
    const std::vector<std::vector<std::vector<std::byte>>>& inputs);

// The outputs of a program on one rank. One that leaves twice is there twice, and shared.
using EvaluatedOutputs = std::vector<std::shared_ptr<const EvaluatedValue>>;

// The same on one rank: the result is [output]. Behind the last collective it computes nothing for
// the other ranks.
Result<EvaluatedOutputs> EvaluateProgramOnRank(
    const ProgramGraph& graph, uint64_t rows, int world_size, int rank,
    const std::vector<std::vector<std::vector<std::byte>>>& inputs);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_EVALUATOR_H_
