#include "plugins/cuda/parts/part_text.h"

#include <algorithm>
#include <cstddef>

#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"

namespace cotune::cuda {

using sdk::Program;

namespace {

// Runs the stages of a launch. If there are several, each block jumps to its own one. The text has
// no loop over stages, out of which the compiler would move what the single stages compute.
void CallStages(const PartStages& stages, const LaunchStages& launch, TextWriter& to) {
  if (launch.count == 1) return CallStage(stages.stages[launch.first], launch.first, true, to);
  const size_t end = launch.first + launch.count;
  to.Open("switch (FirstStage<{}, {}>(a)) {{", launch.first, end);
  for (size_t s = launch.first; s < end; ++s) {
    to.Open("case {}: {{", s);
    to.Line("const StageBlocks blocks = BlocksOfStage<{}, {}>(a);", s, launch.first);
    CallStage(stages.stages[s], s, false, to);
    if (s + 1 < end) to.Line("if (!RunsNextStage<{}>(a)) break;", s);
    to.Close();
    if (s + 1 < end) to.Line("[[fallthrough]];");
  }
  to.Close();
}

}  // namespace

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
  const size_t operands = static_cast<size_t>(program.input_count) + program.outputs.size();
  if (SharesOutBlocks(stages)) {
    to.Line("using Arguments = StagedPartArguments<{}, {}>;", operands, stages.stages.size());
  } else {
    to.Line("using Arguments = PartArguments<{}>;", operands);
  }
  to.Blank();
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    const PartStage& stage = stages.stages[s];
    WriteStage(program, stage, s, StagesOfLaunch(stages, stage.launch).count == 1, to);
  }
  to.Open("__device__ __forceinline__ void RunPart(const Arguments& a) {{");
  if (has_rows) to.Line("RowMemory memory;");
  for (int launch = 0; launch < stages.launches; ++launch) {
    if (stages.launches > 1) to.Open("if (a.launch == {}) {{", launch);
    CallStages(stages, StagesOfLaunch(stages, launch), to);
    if (stages.launches > 1) to.Close();
  }
  to.Close();
  to.Blank();
  to.Line("}}  // namespace cotune::cuda");
  return to.Take();
}

}  // namespace cotune::cuda
