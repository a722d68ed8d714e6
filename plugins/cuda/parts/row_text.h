// The text of a stage that reduces rows. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_ROW_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_ROW_TEXT_H_

#include <cstddef>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/cuda/parts/row_split.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// Defines a struct that computes one row after the other, and a function that walks over all rows.
// is_alone: as for WriteStage.
void WriteRows(const sdk::Program& program, const PartStage& stage, size_t number, bool is_alone,
               TextWriter& to);
// Defines the struct RowSink for a stage that reduces rows. Its threads are given their leaves of
// a row of input 0. The text is that of the part, whose inputs stay in registers.
void WriteRowSink(const sdk::Program& program, const PartStage& stage, TextWriter& to);
// The same in two parts: Fold, which the owner of a row calls, and Store, for which other ranks set
// the carried value and the numbers of the split.
void WriteSplitRowSink(const sdk::Program& program, const PartStage& stage, const RowSplit& split,
                       TextWriter& to);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_ROW_TEXT_H_
