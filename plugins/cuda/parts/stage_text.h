// The text of one stage of a part. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_

#include <cstddef>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/cuda/parts/stage_runs.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// Defines the stage: a struct that works on a leaf, or, if rows are reduced, a function that walks
// over the rows. is_alone: it is the only stage of its launch, and has the whole grid.
void WriteStage(const sdk::Program& program, const PartStage& stage, size_t number, bool is_alone,
                TextWriter& to);
// Defines the stages of a run with several of them: a struct that has the number of its stage. The
// struct has the number of the first stage in its name.
void WriteStages(const StageRun& run, TextWriter& to);
// Calls it from the kernel; a stage that is not alone, with its `blocks`.
void CallStage(const PartStage& stage, size_t number, bool is_alone, TextWriter& to);
// Calls stage `number` of a run with several of them, counted from 0, with its `blocks`.
void CallStages(const StageRun& run, TextWriter& to);

// The operations before and after a collective, for kernels that run them around it
// (kernels/region_leaf.cuh). Each is a part of one stage. Their expressions are those of the part,
// so that both give the same bits.
//
// Defines the struct Source, which computes a leaf of the part's only output. The stage reduces no
// rows.
void WriteSource(const sdk::Program& program, const PartStage& stage, TextWriter& to);
// Defines the struct Sink, which is given a leaf of input 0 and stores the outputs. The stage
// reduces no rows.
void WriteSink(const sdk::Program& program, const PartStage& stage, TextWriter& to);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_STAGE_TEXT_H_
