// How a part is spread over a GPU: threads of a row, threads and rows of a block, blocks. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_SHAPE_H_

#include <cstdint>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// Options of the compiler: another shape is another kernel. Results do not depend on it.
struct PartShape {
  int row_threads = 1;  // a power of two, up to 1024
  int threads = 256;    // of a block: those of one row or of several
};

// The shape for any number of rows: as few threads of a row, from 256 on or one a leaf, as hold its
// inputs in their registers; where none do, as many as there are registers for.
PartShape ShapeOf(const sdk::Program& program, const PartStages& stages);

// The words of all inputs of a thread, if a row has so many threads.
uint64_t HeldWordsOf(const sdk::Program& program, const PartStage& stage, uint64_t row_threads);
// While the inputs of a thread have no more words, they stay in registers between passes over a
// row.
inline constexpr uint64_t kHeldWordsMax = 48;

// How many blocks of a launch have work, those of all its stages together; the kernel computes the
// same with fewer. 0: nothing is to be done.
uint64_t BlocksOf(const sdk::Program& program, const PartStages& stages, const PartShape& shape,
                  int launch);

// How many blocks a launch has at most, where the GPU runs so many at the same time: somewhat more,
// so that one which ends makes room for one that begins to load.
uint64_t BlocksMax(const PartStages& stages, int launch, uint64_t resident_blocks);

// The ends of a launch's stages among its blocks, as StagedPartArguments has them, if the launch
// has at most blocks_max blocks. The last one is the number of its blocks. Each stage has the
// blocks that it has work for. If there are fewer in all, they are shared out by the bytes that
// stages read and write, at least one to each; if there are fewer blocks than stages, stages share
// blocks.
std::vector<unsigned int> StageEndsOf(const sdk::Program& program, const PartStages& stages,
                                      const PartShape& shape, int launch, uint64_t blocks_max);

// To how many bytes each operand, inputs first, has to be aligned for vectors of its leaves.
std::vector<uint32_t> VectorAlignments(const sdk::Program& program, const PartStages& stages);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_SHAPE_H_
