#include "plugins/cuda/parts/part_text.h"

#include <algorithm>
#include <cstddef>

#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"

namespace cotune::cuda {

using sdk::Program;

std::string PartText(const Program& program, const PartStages& stages) {
  TextWriter to;
  const bool has_rows =
      std::any_of(stages.stages.begin(), stages.stages.end(),
                  [](const PartStage& stage) { return stage.kind == StageKind::kRows; });
  const bool has_elements =
      std::any_of(stages.stages.begin(), stages.stages.end(),
                  [](const PartStage& stage) { return stage.kind != StageKind::kRows; });
  to.Line(
      "// Generated from a part of a program. Value v7 is value 7 of the program; in, held, kept "
      "and");
  to.Line("// out are leaves of inputs and outputs.");
  to.Line("#pragma once");
  to.Blank();
  to.Line("#include \"part_abi.h\"");
  if (has_elements) to.Line("#include \"part_elements.cuh\"");
  if (has_rows) to.Line("#include \"part_rows.cuh\"");
  to.Blank();
  to.Line("namespace cotune::cuda {{");
  to.Blank();
  to.Line("using Arguments = PartArguments<{}>;",
          static_cast<size_t>(program.input_count) + program.outputs.size());
  to.Blank();
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    WriteStage(program, stages.stages[s], s, to);
  }
  to.Open("__device__ __forceinline__ void RunPart(const Arguments& a) {{");
  if (has_rows) to.Line("RowMemory memory;");
  for (int launch = 0; launch < stages.launches; ++launch) {
    if (stages.launches > 1) to.Open("if (a.launch == {}) {{", launch);
    for (size_t s = 0; s < stages.stages.size(); ++s) {
      if (stages.stages[s].launch == launch) CallStage(stages.stages[s], s, to);
    }
    if (stages.launches > 1) to.Close();
  }
  to.Close();
  to.Blank();
  to.Line("}}  // namespace cotune::cuda");
  return to.Take();
}

}  // namespace cotune::cuda
