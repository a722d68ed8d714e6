// How a part is cut into stages, each of which is a loop of the kernel: over leaves of elements, or
// over rows where rows are reduced. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_STAGES_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// The columns that one thread reads and writes at once, see kernels/part_leaf.cuh.
inline constexpr uint64_t kLeafColumns = 8;
// What a row of threads has room for.
inline constexpr uint64_t kPartColumnsMax = 65536;

enum class StageKind {
  kElements,  // independent of rows and columns: one row of elements
  kLeaves,    // rows of leaves
  kRows,      // rows with reductions
};

struct PartStage {
  StageKind kind = StageKind::kElements;
  uint32_t rows_kind = COTUNE_ROWS_ALL;
  uint64_t columns = 1;         // of all outputs; of kRows: the most of any value
  std::vector<size_t> outputs;  // indexes into the program's outputs
  std::vector<int> values;      // that they depend on, ascending, with themselves
  int launch = 0;
};

// The stages of a part, in the order in which a kernel runs them. A stage that overwrites what an
// earlier one reads stands in a later launch, because other blocks may still read it; no stage
// overwrites what a later one reads. Outputs that read nothing in common, but for single numbers,
// are in stages of their own, which run in different blocks of one launch.
struct PartStages {
  std::vector<PartStage> stages;
  int launches = 1;
};

// The stages of a launch: `count` in a row.
struct LaunchStages {
  size_t first = 0;
  size_t count = 0;
};
LaunchStages StagesOfLaunch(const PartStages& stages, int launch);
// Returns true if some launch has several stages, so that the kernel has to be called with the
// blocks of each (StagedPartArguments).
bool SharesOutBlocks(const PartStages& stages);

// COTUNE_UNSUPPORTED, with the reason, for an operation that does not compute with its dtype and
// for too many columns; COTUNE_INVALID_ARGUMENT for a program with a collective.
sdk::Result<PartStages> StagesOf(const sdk::Program& program);

// The dtype that a node computes with: that of its operands, of the last ones where a condition
// comes first.
sdk::ValueDtype OperandDtype(const sdk::Program& program, int index);
// The node that defines a value which is no input.
const sdk::ProgramNode& NodeOf(const sdk::Program& program, int index);
// Whether the value is the result of a reduction of several columns.
bool ReducesColumns(const sdk::Program& program, int index);
// How many reductions of columns stand one behind the other in front of each value.
std::vector<int> LevelsOf(const sdk::Program& program);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_STAGES_H_
