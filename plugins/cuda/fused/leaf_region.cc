#include "plugins/cuda/fused/leaf_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/cuda/parts/value_text.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Program;
using sdk::ProgramNode;
using sdk::Result;
using sdk::Value;

// Returns the value of the region's only collective.
Result<int> CollectiveOf(const Program& region) {
  std::optional<int> found;
  for (int v = region.input_count; v < static_cast<int>(region.values.size()); ++v) {
    if (NodeOf(region, v).kind != COTUNE_NODE_COLLECTIVE) continue;
    if (found) return Fail(COTUNE_UNSUPPORTED, "no kernel runs several collectives");
    found = v;
  }
  if (!found) return Fail(COTUNE_INVALID_ARGUMENT, "a region has a collective");
  if (NodeOf(region, *found).collective->collective != sdk::Collective::kAllReduce) {
    return Fail(COTUNE_UNSUPPORTED, "only all_reduce has kernels with operations inside");
  }
  return *found;
}

// Takes some nodes of a region out as a part.
class SideMaker {
 public:
  // given: the value that the part has for its input 0, or -1.
  SideMaker(const Program& region, int given) : region_(region) {
    made_.part.rounds_values = region.rounds_values;
    if (given >= 0) AddInput(given, -1);
  }

  // Makes `outputs` the outputs of the part, with all that they are computed from, up to the given
  // value.
  LeafSide Make(const std::vector<int>& outputs) {
    const std::set<int> needed = NeededFor(outputs);
    for (const int v : needed) {
      if (v < region_.input_count) AddInput(v, v);
    }
    made_.part.input_count = static_cast<int>(made_.part.values.size());
    for (const int v : needed) {
      if (v >= region_.input_count && PlaceOf(v) < 0) AddNode(v);
    }
    for (const int v : outputs) made_.part.outputs.push_back(PlaceOf(v));
    made_.part.output_into.assign(outputs.size(), -1);
    return std::move(made_);
  }
  // The value of the part that stands for a value of the region; -1: none does.
  int PlaceOf(int value) const {
    const auto found = std::find(known_.begin(), known_.end(), value);
    return found == known_.end() ? -1 : static_cast<int>(found - known_.begin());
  }

 private:
  std::set<int> NeededFor(const std::vector<int>& outputs) const {
    std::set<int> needed(outputs.begin(), outputs.end());
    for (auto at = needed.rbegin(); at != needed.rend(); ++at) {
      if (*at < region_.input_count) break;
      if (PlaceOf(*at) >= 0) continue;
      const ProgramNode& node = NodeOf(region_, *at);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[static_cast<size_t>(o)] >= 0) {
          needed.insert(node.operands[static_cast<size_t>(o)]);
        }
      }
    }
    return needed;
  }
  void AddInput(int value, int region_input) {
    known_.push_back(value);
    made_.part.values.push_back(region_.values[static_cast<size_t>(value)]);
    made_.inputs.push_back(region_input);
  }
  void AddNode(int value) {
    ProgramNode node = NodeOf(region_, value);
    for (int o = 0; o < node.operand_count; ++o) {
      int32_t& operand = node.operands[static_cast<size_t>(o)];
      if (operand >= 0) operand = PlaceOf(operand);
    }
    known_.push_back(value);
    made_.part.values.push_back(region_.values[static_cast<size_t>(value)]);
    made_.part.nodes.push_back(node);
  }

  const Program& region_;
  LeafSide made_;
  std::vector<int> known_;  // the region's value of each value of the part
};

// Adds the stages of a side whose outputs have the shape of the collective's value.
Result<void> AddStages(const Value& shape, LeafSide& side) {
  COTUNE_TRY(side.stages, StagesOf(side.part));
  for (const PartStage& stage : side.stages.stages) {
    if (stage.kind == StageKind::kRows) {
      return Fail(COTUNE_UNSUPPORTED,
                  "an operation reduces rows, which needs all leaves of a row at once");
    }
    if (stage.rows_kind != shape.rows_kind || stage.columns != shape.columns) {
      return Fail(COTUNE_UNSUPPORTED,
                  "an output has other rows or columns than the collective's value");
    }
    if (stage.kind == StageKind::kLeaves && shape.columns % kLeafColumns != 0) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("operations depend on the row or the column, and rows of {} columns "
                              "are no whole leaves of {}",
                              shape.columns, kLeafColumns));
    }
  }
  // One value gives one stage; the sink is one because all of its outputs follow from its input 0.
  if (side.stages.stages.size() != 1) {
    return Fail(COTUNE_UNSUPPORTED, "an output does not depend on the collective's value");
  }
  return {};
}

// A leaf has to be a number of packs, and the packs those of the kernels that add up.
Result<void> CheckType(const Value& operand) {
  if (sdk::ElementBytes(operand.dtype) == 2 || sdk::ElementBytes(operand.dtype) == 4) return {};
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("kernels with operations inside add up elements of 2 and 4 bytes, and "
                          "these have {}",
                          sdk::ElementBytes(operand.dtype)));
}

}  // namespace

Result<LeafRegion> LeafRegionOf(const Program& region) {
  COTUNE_TRY(const int value, CollectiveOf(region));
  const ProgramNode& node = NodeOf(region, value);
  const Value& shape = region.values[static_cast<size_t>(value)];
  COTUNE_RETURN_IF_ERROR(CheckType(shape));
  LeafRegion made;
  made.problem = *node.collective;
  made.columns = shape.columns;

  SideMaker source(region, -1);
  made.source = source.Make({node.operands[0]});
  SideMaker sink(region, value);
  made.sink = sink.Make({region.outputs.begin(), region.outputs.end()});
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const int into = region.output_into[o];
    if (into >= 0) made.sink.part.output_into[o] = sink.PlaceOf(into);
  }
  for (int v = region.input_count; v < value; ++v) {
    if (source.PlaceOf(v) < 0 || sink.PlaceOf(v) < 0) continue;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("value {} before the collective is read after it, too", v));
  }
  COTUNE_RETURN_IF_ERROR(AddStages(shape, made.source));
  COTUNE_RETURN_IF_ERROR(AddStages(shape, made.sink));
  return made;
}

// The dtypes of values begin with those of collectives.
constexpr bool HasCodeOf(sdk::ValueDtype dtype, sdk::ElementType type) {
  return static_cast<int>(dtype) == static_cast<int>(type);
}
static_assert(HasCodeOf(sdk::ValueDtype::kF32, sdk::ElementType::kF32) &&
              HasCodeOf(sdk::ValueDtype::kF64, sdk::ElementType::kF64) &&
              HasCodeOf(sdk::ValueDtype::kF16, sdk::ElementType::kF16) &&
              HasCodeOf(sdk::ValueDtype::kBf16, sdk::ElementType::kBf16) &&
              HasCodeOf(sdk::ValueDtype::kI32, sdk::ElementType::kI32) &&
              HasCodeOf(sdk::ValueDtype::kI64, sdk::ElementType::kI64) &&
              HasCodeOf(sdk::ValueDtype::kU8, sdk::ElementType::kU8));

Result<LeafRegion> BareLeafRegion(const sdk::Problem& problem) {
  Program region;
  const Value column{
      .dtype = static_cast<sdk::ValueDtype>(problem.type), .rows = problem.count, .columns = 1};
  region.values = {column, column};
  region.input_count = 1;
  region.nodes = {{.kind = COTUNE_NODE_COLLECTIVE, .operand_count = 1, .collective = problem}};
  region.nodes.front().collective->program_digest = 0;
  region.outputs = {1};
  region.output_into = {problem.in_place ? 0 : -1};
  return LeafRegionOf(region);
}

std::string LeafRegionText(const LeafRegion& region) {
  TextWriter to;
  to.Line("// Generated from a region of a program: the operations around its collective.");
  to.Line("#pragma once");
  to.Blank();
  to.Line("#include \"part_abi.h\"");
  to.Line("#include \"part_leaf.cuh\"");
  to.Blank();
  to.Line("namespace cotune::cuda {{");
  to.Blank();
  const auto operands = [](const LeafSide& side) {
    return side.inputs.size() + side.part.outputs.size();
  };
  to.Line("using Reduced = {};", DtypeText(region.sink.part.values.front().dtype));
  to.Line("using SourceArguments = PartArguments<{}>;", operands(region.source));
  to.Line("using SinkArguments = PartArguments<{}>;", operands(region.sink));
  to.Line("constexpr unsigned int kColumns = {};", region.columns);
  to.Blank();
  WriteSource(region.source.part, region.source.stage(), to);
  WriteSink(region.sink.part, region.sink.stage(), to);
  to.Line("}}  // namespace cotune::cuda");
  return to.Take();
}

}  // namespace cotune::cuda
