#include "plugins/cuda/parts/stage_runs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"

namespace cotune::cuda {
namespace {

using sdk::Program;
using sdk::ProgramNode;

// A stage that may be one of a run.
struct CutStage {
  StageRun run;  // has this stage alone
  std::string text;
};

// Takes a stage out of its part. `program` has no copies of inputs.
StageRun RunOf(const Program& program, const PartStage& stage, size_t number) {
  StageRun run{.first = number, .columns = {stage.columns}};
  std::vector<int> places(program.values.size(), -1);
  run.program.rounds_values = program.rounds_values;
  for (const int v : stage.values) {
    places[static_cast<size_t>(v)] = static_cast<int>(run.program.values.size());
    run.program.values.push_back(program.values[static_cast<size_t>(v)]);
    if (v < program.input_count) {
      ++run.program.input_count;
      run.operands.push_back({static_cast<size_t>(v), 0});
      continue;
    }
    ProgramNode node = NodeOf(program, v);
    for (int o = 0; o < node.operand_count; ++o) {
      int32_t& operand = node.operands[static_cast<size_t>(o)];
      if (operand >= 0) operand = places[static_cast<size_t>(operand)];
    }
    run.program.nodes.push_back(node);
  }
  run.stage = stage;
  for (size_t i = 0; i < stage.values.size(); ++i) run.stage.values[i] = static_cast<int>(i);
  for (size_t i = 0; i < stage.outputs.size(); ++i) {
    const size_t output = stage.outputs[i];
    run.operands.push_back({static_cast<size_t>(program.input_count) + output, 0});
    run.program.outputs.push_back(places[static_cast<size_t>(program.outputs[output])]);
    run.program.output_into.push_back(-1);
    run.stage.outputs[i] = i;
  }
  return run;
}

// Returns true if the stage computes the same bits as a part of its own: a value of it that is an
// output of another stage is rounded in the whole part alone.
bool IsSameAlone(const Program& program, const PartStage& stage, const StageRun& run) {
  for (size_t i = 0; i < stage.values.size(); ++i) {
    if (IsRoundedForReaders(program, stage.values[i]) !=
        IsRoundedForReaders(run.program, static_cast<int>(i))) {
      return false;
    }
  }
  return true;
}

std::string TextOf(const StageRun& run) {
  TextWriter to;
  WriteStage(run.program, run.stage, 0, false, to);
  return to.Take();
}

// Adds the stage to the run, if they have one text and the operands lie as far apart as those of
// the stages before. Returns false if not.
bool Join(const CutStage& stage, const std::string& text, StageRun& run) {
  if (stage.text.empty() || stage.text != text) return false;
  std::vector<OperandStep> joined = run.operands;
  for (size_t i = 0; i < joined.size(); ++i) {
    const size_t operand = stage.run.operands[i].first;
    if (run.count == 1) {
      joined[i].step = static_cast<int64_t>(operand) - static_cast<int64_t>(joined[i].first);
    }
    if (joined[i].At(run.count) != operand) return false;
  }
  run.operands = std::move(joined);
  run.columns.push_back(stage.run.columns.front());
  ++run.count;
  return true;
}

}  // namespace

std::vector<StageRun> RunsOf(const Program& program, const PartStages& stages, int launch) {
  const Program without_copies = sdk::WithoutCopies(program);
  const LaunchStages of_launch = StagesOfLaunch(stages, launch);
  std::vector<StageRun> runs;
  std::string text;  // the last run has it; "": nothing joins that run
  for (size_t s = of_launch.first; s < of_launch.first + of_launch.count; ++s) {
    const PartStage& stage = stages.stages[s];
    CutStage cut{RunOf(without_copies, stage, s), ""};
    const bool may_join =
        stage.kind == StageKind::kElements && IsSameAlone(without_copies, stage, cut.run);
    if (may_join) cut.text = TextOf(cut.run);
    const bool has_joined = !runs.empty() && runs.back().stage.rows_kind == stage.rows_kind &&
                            Join(cut, text, runs.back());
    if (has_joined) continue;
    text = std::move(cut.text);
    runs.push_back(std::move(cut.run));
  }
  return runs;
}

}  // namespace cotune::cuda
