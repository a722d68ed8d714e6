// Cuts the operations on a row in two: those up to its reductions, which the rank that owns the row
// runs, and those that are left for every rank. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_ROW_SPLIT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_ROW_SPLIT_H_

#include <cstddef>
#include <span>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// An owner sends so many numbers of a row at most, because they travel in one pack.
inline constexpr size_t kSplitNumbersMax = 4;

// The operations up to the last reduction are the *head*, which the owner of a row runs. The others
// are the *tail*. The owner sends these values to the other
// ranks: their indexes in the part without copies (sdk::WithoutCopies).
struct RowSplit {
  int carried = 0;           // input 0, or a value of its dtype and number of columns
  std::vector<int> numbers;  // the reductions of the row, ascending; none is wider than 32 bits
};

// Splits a stage of a part whose input 0 is the value of a collective. COTUNE_UNSUPPORTED, with the
// reason, if it reduces no rows, or the one row of a value; if values have other columns than input
// 0; if it needs more or wider numbers than a pack holds; if the head reads an input that is not
// replicated; if the tail reads an input which has as many rows as the value, and several columns;
// and if an output of one number a row overwrites an input. inputs: for each input of the part the
// number by which the caller knows it.
sdk::Result<RowSplit> SplitOf(const sdk::Program& part, const PartStage& stage,
                              std::span<const int> inputs);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_ROW_SPLIT_H_
