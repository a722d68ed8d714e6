#include "plugins/cuda/fused/leaf_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "plugins/cuda/kernels/part_abi.h"
#include "plugins/cuda/parts/row_text.h"
#include "plugins/cuda/parts/stage_text.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/cuda/parts/value_text.h"
#include "plugins/sdk/bucket.h"
#include "plugins/sdk/call_record.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Program;
using sdk::ProgramNode;
using sdk::Result;
using sdk::Value;

// Returns the values of the region's collectives, ascending.
std::vector<int> CollectivesOf(const Program& region) {
  std::vector<int> found;
  for (int v = region.input_count; v < static_cast<int>(region.values.size()); ++v) {
    if (NodeOf(region, v).kind == COTUNE_NODE_COLLECTIVE) found.push_back(v);
  }
  return found;
}

Result<void> CheckCollective(const Program& region, int value) {
  if (NodeOf(region, value).collective->collective == sdk::Collective::kAllReduce) return {};
  return Fail(COTUNE_UNSUPPORTED, "only all_reduce has kernels with operations inside");
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
  // value. The part gets these inputs, too.
  LeafSide Make(const std::vector<int>& outputs, const std::vector<int>& more_inputs = {}) {
    std::set<int> needed = NeededFor(outputs);
    needed.insert(more_inputs.begin(), more_inputs.end());
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

// Nothing if kernels can run a sink that reduces rows of the collective's value.
Result<void> CheckRowStage(const Value& shape, const PartStage& stage) {
  if (stage.rows_kind != shape.rows_kind) {
    return Fail(COTUNE_UNSUPPORTED, "an output has other rows than the collective's value");
  }
  if (shape.columns > 1) return {};
  return Fail(COTUNE_UNSUPPORTED,
              "an operation reduces rows, and the collective's have one column");
}

// Adds the stages of a side whose outputs have the rows of the collective's value.
Result<void> AddStages(const Value& shape, bool takes_rows, LeafSide& side) {
  COTUNE_TRY(side.stages, StagesOf(side.part));
  for (const PartStage& stage : side.stages.stages) {
    if (stage.kind == StageKind::kRows) {
      if (takes_rows) {
        COTUNE_RETURN_IF_ERROR(CheckRowStage(shape, stage));
        continue;
      }
      return Fail(COTUNE_UNSUPPORTED,
                  "an operation before the collective reduces rows, which needs all leaves of a "
                  "row at once");
    }
    if (stage.rows_kind != shape.rows_kind || stage.columns != shape.columns) {
      return Fail(COTUNE_UNSUPPORTED,
                  "an output has other rows or columns than the collective's value");
    }
  }
  // One value gives one stage; the sink is one because all of its outputs follow from its input 0.
  if (side.stages.stages.size() != 1) {
    return Fail(COTUNE_UNSUPPORTED, "an output does not depend on the collective's value");
  }
  return {};
}

// The inputs of which a row has one number that an output overwrites. All threads of a row read
// such an input, and one of them writes the output: as inputs of the sink they make that thread
// wait for the others of the row (SyncRow), even if only the source reads them.
std::vector<int> OverwrittenNumbers(const Program& region, const Value& shape) {
  std::vector<int> numbers;
  for (const int into : region.output_into) {
    if (into < 0 || shape.columns == 1) continue;
    if (region.values[static_cast<size_t>(into)].columns == 1) numbers.push_back(into);
  }
  return numbers;
}

// If operations depend on the row or the column, a leaf has one row. The leaves of a flat array
// cross the ends of rows that are no whole leaves, so that the kernels of rows run such a region.
void TakeOddRows(const Value& shape, LeafPiece& piece) {
  const bool has_places = piece.source.stage().kind == StageKind::kLeaves ||
                          piece.sink.stage().kind == StageKind::kLeaves;
  if (!has_places || shape.columns % kLeafColumns == 0) return;
  piece.sink.stages.stages.front().kind = StageKind::kRows;
}

// Cuts a region that has one collective.
Result<LeafPiece> PieceAt(const Program& region, int value) {
  const ProgramNode& node = NodeOf(region, value);
  const Value& shape = region.values[static_cast<size_t>(value)];
  LeafPiece made;
  made.elements = node.collective->count;
  SideMaker source(region, -1);
  made.source = source.Make({node.operands[0]});
  SideMaker sink(region, value);
  made.sink =
      sink.Make({region.outputs.begin(), region.outputs.end()}, OverwrittenNumbers(region, shape));
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    made.outputs.push_back(static_cast<int>(o));
    const int into = region.output_into[o];
    if (into >= 0) made.sink.part.output_into[o] = sink.PlaceOf(into);
  }
  for (int v = region.input_count; v < value; ++v) {
    if (source.PlaceOf(v) < 0 || sink.PlaceOf(v) < 0) continue;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("value {} before the collective is read after it, too", v));
  }
  COTUNE_RETURN_IF_ERROR(AddStages(shape, false, made.source));
  COTUNE_RETURN_IF_ERROR(AddStages(shape, true, made.sink));
  TakeOddRows(shape, made);
  return made;
}

std::string TextOf(const LeafPiece& piece, RowSide rows = RowSide::kWhole) {
  TextWriter to;
  WriteSource(piece.source.part, piece.source.stage(), to);
  if (rows == RowSide::kSplit) {
    const auto split = SplitOf(piece.sink.part, piece.sink.stage(), piece.sink.inputs);
    WriteSplitRowSink(piece.sink.part, piece.sink.stage(), split.value(), to);
  } else if (piece.sink.stage().kind == StageKind::kRows) {
    WriteRowSink(piece.sink.part, piece.sink.stage(), to);
  } else {
    WriteSink(piece.sink.part, piece.sink.stage(), to);
  }
  return to.Take();
}

// The columns that the kernel knows: 1, if nothing depends on the row or the column. Then one
// kernel serves all widths.
uint64_t KernelColumns(const LeafRegion& region) {
  const bool has_places = region.source().stage().kind != StageKind::kElements ||
                          region.sink().stage().kind != StageKind::kElements;
  return has_places ? region.columns : 1;
}

// Nothing if one kernel can run all pieces.
Result<void> CheckAlike(const std::vector<LeafPiece>& pieces) {
  const std::string text = TextOf(pieces.front());
  for (const LeafPiece& piece : pieces) {
    for (const LeafSide* const side : {&piece.source, &piece.sink}) {
      if (side->stage().kind == StageKind::kElements) continue;
      return Fail(COTUNE_UNSUPPORTED,
                  "operations of a bucket depend on the row or the column of its collectives");
    }
    if (TextOf(piece) == text) continue;
    return Fail(COTUNE_UNSUPPORTED, "the collectives of a bucket have different operations");
  }
  const auto operands = [&](const LeafSide& side) {
    return pieces.size() * (side.inputs.size() + side.part.outputs.size());
  };
  const size_t most = std::max(operands(pieces.front().source), operands(pieces.front().sink));
  if (pieces.size() <= kPiecesMax && most <= kPartOperandsMax) return {};
  return Fail(
      COTUNE_UNSUPPORTED,
      fmt::format("a bucket of {} collectives with {} operands has no kernel, which take {} "
                  "and {} at most",
                  pieces.size(), most, kPiecesMax, kPartOperandsMax));
}

// A digest by which ranks find out that they run other operations or other sizes; not 0, which
// marks a collective by itself.
uint64_t DigestOf(const Program& region, const std::vector<LeafPiece>& pieces) {
  constexpr uint64_t kPrime = 0x100000001b3;  // that of FNV-1a
  uint64_t digest = sdk::RecordedDigestOf(region);
  for (const LeafPiece& piece : pieces) digest = (digest ^ piece.elements) * kPrime;
  return std::max<uint64_t>(1, digest);
}

// Cuts a region of several collectives.
Result<LeafRegion> BucketOf(const Program& region, const std::vector<int>& collectives) {
  COTUNE_TRY(const std::vector<sdk::BucketPiece> cut, sdk::PiecesOf(region));
  LeafRegion made;
  made.problem = *NodeOf(region, collectives.front()).collective;
  uint64_t leaves = 0;
  for (const sdk::BucketPiece& each : cut) {
    const sdk::Problem& problem = *NodeOf(each.program, each.collective).collective;
    if (problem.reduction != made.problem.reduction || problem.type != made.problem.type) {
      return Fail(COTUNE_UNSUPPORTED, "the collectives have different reductions or dtypes");
    }
    COTUNE_TRY(LeafPiece piece, PieceAt(each.program, each.collective));
    piece.outputs.assign(each.outputs.begin(), each.outputs.end());
    leaves += piece.leaves();
    made.pieces.push_back(std::move(piece));
  }
  COTUNE_RETURN_IF_ERROR(CheckAlike(made.pieces));
  made.problem.count = leaves * kLeafColumns;
  made.problem.program_digest = DigestOf(region, made.pieces);
  return made;
}

}  // namespace

Result<LeafRegion> LeafRegionOf(const Program& region) {
  const std::vector<int> collectives = CollectivesOf(region);
  if (collectives.empty()) return Fail(COTUNE_INVALID_ARGUMENT, "a region has a collective");
  for (const int value : collectives) COTUNE_RETURN_IF_ERROR(CheckCollective(region, value));
  if (collectives.size() > 1) return BucketOf(region, collectives);
  LeafRegion made;
  made.problem = *NodeOf(region, collectives.front()).collective;
  made.columns = region.values[static_cast<size_t>(collectives.front())].columns;
  COTUNE_TRY(LeafPiece piece, PieceAt(region, collectives.front()));
  made.pieces.push_back(std::move(piece));
  if (made.has_rows()) made.problem.program_digest = DigestOf(region, made.pieces);
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

std::string LeafRegionText(const LeafRegion& region, RowSide rows) {
  TextWriter to;
  to.Line("// Generated from a region of a program: the operations around its collective.");
  to.Line("#pragma once");
  to.Blank();
  to.Line("#include \"leaf_operands.cuh\"");
  to.Line("#include \"{}.cuh\"", region.has_rows() ? "part_rows" : "part_leaf");
  to.Blank();
  to.Line("namespace cotune::cuda {{");
  to.Blank();
  const auto arguments = [&](const LeafSide& side) {
    const size_t pieces = region.pieces.size();
    const size_t operands = pieces * (side.inputs.size() + side.part.outputs.size());
    return region.is_bucket() ? fmt::format("PieceArguments<{}, {}>", operands, pieces)
                              : fmt::format("PartArguments<{}>", operands);
  };
  to.Line("using Reduced = {};", DtypeText(region.sink().part.values.front().dtype));
  to.Line("using SourceArguments = {};", arguments(region.source()));
  to.Line("using SinkArguments = {};", arguments(region.sink()));
  to.Line("using SourceOperands = OperandsOf<SourceArguments>;");
  to.Line("using SinkOperands = OperandsOf<SinkArguments>;");
  to.Line("constexpr unsigned int kColumns = {};", KernelColumns(region));
  to.Blank();
  return to.Take() + TextOf(region.pieces.front(), rows) + "}  // namespace cotune::cuda\n";
}

}  // namespace cotune::cuda
