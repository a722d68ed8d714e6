#include "plugins/cuda/parts/part_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "plugins/cuda/parts/stage_runs.h"
#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"

namespace cotune::cuda {

using sdk::Program;

namespace {

// Runs the stages of a run in the blocks that have them. first: the first stage of the launch.
// next: the run after it; nullptr: there is none.
void CallRun(const PartStages& stages, const StageRun& run, size_t first, const StageRun* next,
             TextWriter& to) {
  const size_t end = run.first + run.count;
  for (size_t s = run.first; s + 1 < end; ++s) to.Line("case {}:", s);
  to.Open("case {}: {{", end - 1);
  if (run.count == 1) {
    to.Line("const StageBlocks blocks = BlocksOfStage<{}>(a, {});", first, run.first);
    CallStage(stages.stages[run.first], run.first, false, to);
  } else {
    to.Open("const auto run = [&](unsigned int number, const StageBlocks& blocks) {{");
    CallStages(run, to);
    to.Close("};");
    to.Line("stage = RunStages<{}, {}, {}>(a, stage, run);", first, run.first, end);
  }
  if (next != nullptr) {
    const std::string last = run.count == 1 ? fmt::format("{}", run.first) : "stage";
    to.Line("if (!RunsNextStage(a, {})) break;", last);
    if (next->count > 1) to.Line("stage = {};", end);
  }
  to.Close();
  if (next != nullptr) to.Line("[[fallthrough]];");
}

// Runs the stages of a launch. If there are several, each block jumps to its own one. The text has
// no loop over stages that differ, out of which the compiler would move what the single stages
// compute.
void CallLaunch(const PartStages& stages, const LaunchStages& launch,
                const std::vector<StageRun>& runs, TextWriter& to) {
  if (launch.count == 1) return CallStage(stages.stages[launch.first], launch.first, true, to);
  const std::string stage =
      fmt::format("FirstStage<{}, {}>(a)", launch.first, launch.first + launch.count);
  if (runs.size() == launch.count) {
    to.Open("switch ({}) {{", stage);
  } else {
    to.Line("unsigned int stage = {};", stage);
    to.Open("switch (stage) {{");
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    const StageRun* const next = r + 1 < runs.size() ? &runs[r + 1] : nullptr;
    CallRun(stages, runs[r], launch.first, next, to);
  }
  to.Close();
}

// Defines the stages of a launch.
void WriteLaunch(const Program& program, const PartStages& stages,
                 const std::vector<StageRun>& runs, TextWriter& to) {
  for (const StageRun& run : runs) {
    if (run.count > 1) {
      WriteStages(run, to);
      continue;
    }
    const PartStage& stage = stages.stages[run.first];
    WriteStage(program, stage, run.first, StagesOfLaunch(stages, stage.launch).count == 1, to);
  }
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
  std::vector<std::vector<StageRun>> runs;
  for (int launch = 0; launch < stages.launches; ++launch) {
    runs.push_back(RunsOf(program, stages, launch));
    WriteLaunch(program, stages, runs.back(), to);
  }
  to.Open("__device__ __forceinline__ void RunPart(const Arguments& a) {{");
  if (has_rows) to.Line("RowMemory memory;");
  for (int launch = 0; launch < stages.launches; ++launch) {
    if (stages.launches > 1) to.Open("if (a.launch == {}) {{", launch);
    CallLaunch(stages, StagesOfLaunch(stages, launch), runs[static_cast<size_t>(launch)], to);
    if (stages.launches > 1) to.Close();
  }
  to.Close();
  to.Blank();
  to.Line("}}  // namespace cotune::cuda");
  return to.Take();
}

}  // namespace cotune::cuda
