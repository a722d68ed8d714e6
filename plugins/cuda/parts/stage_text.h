// The text of one stage of a part. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_

#include <cstddef>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// Defines the stage: a struct that works on a leaf, or, if rows are reduced, a function that walks
// over the rows. is_alone: it is the only stage of its launch, and has the whole grid.
void WriteStage(const sdk::Program& program, const PartStage& stage, size_t number, bool is_alone,
                TextWriter& to);
// Calls it from the kernel; a stage that is not alone, with its `blocks`.
void CallStage(const PartStage& stage, size_t number, bool is_alone, TextWriter& to);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_
