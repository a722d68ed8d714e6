#include "plugins/cuda/parts/part_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Program;
using sdk::ProgramNode;
using sdk::Result;
using sdk::Value;
using sdk::ValueDtype;

bool TakesIntegers(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_ADD:
    case COTUNE_NODE_SUB:
    case COTUNE_NODE_MUL:
    case COTUNE_NODE_MIN:
    case COTUNE_NODE_MAX:
    case COTUNE_NODE_NEG:
    case COTUNE_NODE_ABS:
    case COTUNE_NODE_RELU:
    case COTUNE_NODE_CLAMP:
    case COTUNE_NODE_LESS:
    case COTUNE_NODE_EQUAL:
    case COTUNE_NODE_WHERE:
    case COTUNE_NODE_CAST:
      return true;
    default:
      return false;
  }
}

class StageMaker {
 public:
  explicit StageMaker(const Program& program)
      : program_(sdk::WithoutCopies(program)), levels_(LevelsOf(program_)) {}

  Result<PartStages> Make() {
    COTUNE_RETURN_IF_ERROR(Check());
    for (const uint32_t rows_kind : {COTUNE_ROWS_ALL, COTUNE_ROWS_SHARE, COTUNE_ROWS_ONE}) {
      AddStages(rows_kind);
    }
    SetLaunches();
    return std::move(made_);
  }

 private:
  const Value& value(int index) const { return program_.values[static_cast<size_t>(index)]; }
  bool IsInput(int index) const { return index < program_.input_count; }

  Result<void> Check() const {
    for (int v = 0; v < static_cast<int>(program_.values.size()); ++v) {
      if (value(v).columns > kPartColumnsMax) {
        return Fail(COTUNE_UNSUPPORTED,
                    fmt::format("value {} has {} columns, and the cuda backend computes with up "
                                "to {}; cut the rows",
                                v, value(v).columns, kPartColumnsMax));
      }
      if (IsInput(v)) continue;
      const uint32_t kind = NodeOf(program_, v).kind;
      if (kind == COTUNE_NODE_COLLECTIVE) {
        return Fail(COTUNE_INVALID_ARGUMENT,
                    "a part has a collective; parts are prepared without a group, so cut the "
                    "program at its collectives");
      }
      if (!sdk::IsFloat(OperandDtype(program_, v)) && !TakesIntegers(kind)) {
        return Fail(COTUNE_UNSUPPORTED,
                    fmt::format("value {}: the cuda backend has no operation {} of integers; cast "
                                "the operands, or leave this operation to the caller",
                                v, kind));
      }
    }
    return {};
  }

  // All that the outputs depend on, with the outputs themselves.
  std::vector<int> ValuesOf(const std::vector<size_t>& outputs) const {
    std::set<int> needed;
    for (const size_t output : outputs) needed.insert(program_.outputs[output]);
    for (auto at = needed.rbegin(); at != needed.rend(); ++at) {
      if (IsInput(*at)) break;
      const ProgramNode& node = NodeOf(program_, *at);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[o] >= 0) needed.insert(node.operands[o]);
      }
    }
    return {needed.begin(), needed.end()};
  }

  // The outputs of one kind of rows, in groups that have no value in common. Each group is in the
  // order of the outputs, and groups are in the order of their first ones.
  std::vector<std::vector<size_t>> IndependentOutputs(uint32_t rows_kind) const {
    std::vector<size_t> outputs;
    std::set<int> overwritten;
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      if (value(program_.outputs[o]).rows_kind != rows_kind) continue;
      outputs.push_back(o);
      if (program_.output_into[o] >= 0) overwritten.insert(program_.output_into[o]);
    }
    // A number for all rows is loaded by each group that reads it. A group that overwrites it is
    // the only one here that reads it.
    const auto joins = [&](int v) {
      const bool is_number = value(v).rows_kind == COTUNE_ROWS_ONE && value(v).columns == 1;
      return !is_number || overwritten.count(v) != 0;
    };
    struct Group {
      std::set<int> values;
      std::vector<size_t> outputs;
    };
    std::vector<Group> groups;
    for (const size_t o : outputs) {
      Group made;
      made.outputs.push_back(o);
      for (const int v : ValuesOf({o})) {
        if (joins(v)) made.values.insert(v);
      }
      if (program_.output_into[o] >= 0) made.values.insert(program_.output_into[o]);
      size_t place = groups.size();
      for (size_t g = groups.size(); g-- > 0;) {
        const bool is_joined = std::any_of(made.values.begin(), made.values.end(),
                                           [&](int v) { return groups[g].values.count(v) != 0; });
        if (!is_joined) continue;
        made.values.insert(groups[g].values.begin(), groups[g].values.end());
        made.outputs.insert(made.outputs.end(), groups[g].outputs.begin(), groups[g].outputs.end());
        groups.erase(groups.begin() + static_cast<ptrdiff_t>(g));
        place = g;
      }
      std::sort(made.outputs.begin(), made.outputs.end());
      groups.insert(groups.begin() + static_cast<ptrdiff_t>(place), std::move(made));
    }
    std::vector<std::vector<size_t>> made;
    for (Group& group : groups) made.push_back(std::move(group.outputs));
    return made;
  }

  void AddStages(uint32_t rows_kind) {
    for (const std::vector<size_t>& outputs : IndependentOutputs(rows_kind)) {
      AddStages(rows_kind, outputs);
    }
  }

  void AddStages(uint32_t rows_kind, const std::vector<size_t>& all) {
    std::map<uint64_t, std::vector<size_t>, std::greater<>> by_columns;
    bool reduces = false;
    for (const size_t o : all) {
      const int output = program_.outputs[o];
      by_columns[value(output).columns].push_back(o);
      reduces = reduces || levels_[static_cast<size_t>(output)] > 0;
    }
    if (reduces) {
      PartStage stage{StageKind::kRows, rows_kind, 1, all, ValuesOf(all)};
      for (const int v : stage.values) stage.columns = std::max(stage.columns, value(v).columns);
      made_.stages.push_back(std::move(stage));
      return;
    }
    for (const auto& [columns, outputs] : by_columns) {
      PartStage stage{StageKind::kElements, rows_kind, columns, outputs, ValuesOf(outputs)};
      if (DependsOnPlace(stage)) stage.kind = StageKind::kLeaves;
      made_.stages.push_back(std::move(stage));
    }
  }

  // Whether an operand is repeated over rows or columns, other than a single value.
  bool DependsOnPlace(const PartStage& stage) const {
    return std::any_of(stage.values.begin(), stage.values.end(), [&](int v) {
      const bool is_single = value(v).rows_kind == COTUNE_ROWS_ONE && value(v).columns == 1;
      return !is_single &&
             (value(v).rows_kind != stage.rows_kind || value(v).columns != stage.columns);
    });
  }

  bool Overwrites(const PartStage& writer, const PartStage& reader) const {
    return std::any_of(writer.outputs.begin(), writer.outputs.end(), [&](size_t output) {
      const int into = program_.output_into[output];
      return into >= 0 && std::binary_search(reader.values.begin(), reader.values.end(), into);
    });
  }

  void SetLaunches() {
    int launch = 0;
    for (size_t s = 0; s < made_.stages.size(); ++s) {
      for (size_t before = 0; before < s; ++before) {
        if (Overwrites(made_.stages[s], made_.stages[before])) {
          launch = std::max(launch, made_.stages[before].launch + 1);
        }
      }
      made_.stages[s].launch = launch;
    }
    made_.launches = launch + 1;
  }

  const Program program_;
  const std::vector<int> levels_;
  PartStages made_;
};

}  // namespace

Result<PartStages> StagesOf(const Program& program) { return StageMaker(program).Make(); }

LaunchStages StagesOfLaunch(const PartStages& stages, int launch) {
  const auto is_earlier = [&](const PartStage& stage) { return stage.launch < launch; };
  const auto is_of_it = [&](const PartStage& stage) { return stage.launch == launch; };
  const auto& all = stages.stages;
  return {static_cast<size_t>(std::count_if(all.begin(), all.end(), is_earlier)),
          static_cast<size_t>(std::count_if(all.begin(), all.end(), is_of_it))};
}

bool SharesOutBlocks(const PartStages& stages) {
  return stages.stages.size() > static_cast<size_t>(stages.launches);
}

const ProgramNode& NodeOf(const Program& program, int index) {
  return program.nodes[static_cast<size_t>(index - program.input_count)];
}

ValueDtype OperandDtype(const Program& program, int index) {
  const ProgramNode& node = NodeOf(program, index);
  for (int o = node.operand_count - 1; o >= (node.kind == COTUNE_NODE_WHERE ? 1 : 0); --o) {
    if (node.operands[o] >= 0) return program.values[static_cast<size_t>(node.operands[o])].dtype;
  }
  return program.values[static_cast<size_t>(index)].dtype;
}

bool ReducesColumns(const Program& program, int index) {
  if (index < program.input_count) return false;
  const ProgramNode& node = NodeOf(program, index);
  return sdk::IsRowReduction(node.kind) &&
         program.values[static_cast<size_t>(node.operands[0])].columns > 1;
}

std::vector<int> LevelsOf(const Program& program) {
  std::vector<int> levels(program.values.size(), 0);
  for (int v = program.input_count; v < static_cast<int>(program.values.size()); ++v) {
    const ProgramNode& node = NodeOf(program, v);
    int& level = levels[static_cast<size_t>(v)];
    for (int o = 0; o < node.operand_count; ++o) {
      if (node.operands[o] >= 0) {
        level = std::max(level, levels[static_cast<size_t>(node.operands[o])]);
      }
    }
    if (ReducesColumns(program, v)) ++level;
  }
  return levels;
}

}  // namespace cotune::cuda
