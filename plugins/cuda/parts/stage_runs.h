// Stages of one launch that have one text: the gradients of a bucket, for example, are copied or
// scaled alike. A kernel with a text of its own for each of 16 tensors takes five times as long to
// compile. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_STAGE_RUNS_H_
#define COTUNE_PLUGINS_CUDA_PARTS_STAGE_RUNS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// The operand of a part that stage `number` of a run has in place of an operand of the first stage.
struct OperandStep {
  size_t first = 0;
  int64_t step = 0;  // from one stage of the run to the next

  size_t At(size_t number) const {
    return static_cast<size_t>(static_cast<int64_t>(first) + static_cast<int64_t>(number) * step);
  }
  bool operator==(const OperandStep&) const = default;
};

// Consecutive stages of a launch. The stages of a run with several of them do the same without
// regard to rows and columns (StageKind::kElements), and the indexes of their operands have the
// same distance from one stage to the next.
struct StageRun {
  size_t first = 0;  // among the stages of the part
  size_t count = 1;
  // The first stage as a part of its own. If the run has several stages, the text is made of it.
  sdk::Program program{};
  PartStage stage{};
  std::vector<OperandStep> operands{};  // for each operand of that part
  std::vector<uint64_t> columns{};      // each stage of the run has its own
};

// The runs of a launch, in the order of the stages: each is as long as possible.
std::vector<StageRun> RunsOf(const sdk::Program& program, const PartStages& stages, int launch);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_STAGE_RUNS_H_
