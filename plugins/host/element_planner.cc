#include "plugins/host/element_planner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/host/block_instructions.h"
#include "plugins/host/element_kernels.h"
#include "plugins/host/element_plan.h"
#include "plugins/host/part_analysis.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using Base = ElementOperand::Base;
using sdk::Program;
using sdk::ProgramNode;
using sdk::Value;

class Planner {
 public:
  explicit Planner(const Program& program)
      : program_(program),
        order_(program),
        splat_(program.values.size()),
        row_(program.values.size()),
        bits_(program.values.size()),
        registers_(memory_) {}

  Result<ElementPlan> Plan() {
    for (const ProgramNode& node : program_.nodes) {
      if (node.kind == COTUNE_NODE_COLLECTIVE) {
        return Fail(COTUNE_INVALID_ARGUMENT,
                    "a part has a collective; parts are prepared without a group, so cut the "
                    "program at its collectives");
      }
    }
    COTUNE_RETURN_IF_ERROR(PlanLoop(COTUNE_ROWS_ONE, plan_.single));
    for (const uint32_t kind : {COTUNE_ROWS_ALL, COTUNE_ROWS_SHARE}) {
      if (!order_.HasLoop(kind)) continue;
      plan_.loops.emplace_back();
      COTUNE_RETURN_IF_ERROR(PlanLoop(kind, plan_.loops.back()));
    }
    PlanSingleStores();
    plan_.tails = memory_.Take(4 * kTailBytes);
    plan_.own_bytes = memory_.bytes();
    return std::move(plan_);
  }

 private:
  const Value& value(int index) const { return order_.value(index); }
  const ProgramNode& NodeOf(int index) const { return order_.NodeOf(index); }
  Lane LaneAt(int index) const { return order_.LaneAt(index); }
  size_t LaneBytesAt(int index) const { return LaneBytes(LaneAt(index)); }

  // ---- Operands.

  ElementOperand InMemory(Base base, uint32_t index, const Value& type) const {
    const size_t bytes = sdk::ElementBytes(type.dtype);
    return {.base = base,
            .column_bytes = static_cast<uint16_t>(bytes),
            .element_bytes = static_cast<uint16_t>(bytes),
            .index = index,
            .row_bytes = type.rows_kind == COTUNE_ROWS_ONE ? 0 : type.columns * bytes};
  }
  ElementOperand SplatAt(uint64_t offset) const { return {.step = 0, .offset = offset}; }
  ElementOperand SplatOf(int index) {
    if (!splat_[index]) splat_[index] = memory_.Take(kSplatBytes);
    return SplatAt(*splat_[index]);
  }
  ElementOperand RowOf(int index) {
    const size_t bytes = LaneBytesAt(index);
    if (!row_[index]) row_[index] = memory_.Take(value(index).columns * bytes);
    return {.column_bytes = static_cast<uint16_t>(bytes),
            .element_bytes = static_cast<uint16_t>(bytes),
            .offset = *row_[index]};
  }
  ElementOperand LiteralOf(double literal, Lane lane) {
    const uint64_t offset = memory_.Take(kSplatBytes);
    plan_.literals.push_back({.offset = offset, .lane = lane, .value = literal});
    return SplatAt(offset);
  }

  // ---- Instructions.

  static std::string Named(const ProgramNode& node, Lane lane) {
    static constexpr const char* kLanes[] = {"f32", "f64", "i32", "i64", "u8", "i8"};
    return fmt::format("operation {} of {} values", node.kind, kLanes[static_cast<int>(lane)]);
  }

  // The lane that a node computes with: that of its operands, the last ones where a condition comes
  // first.
  Lane LaneOfOperands(const ProgramNode& node, int result) const {
    for (int o = node.operand_count - 1; o >= (node.kind == COTUNE_NODE_WHERE ? 1 : 0); --o) {
      if (node.operands[o] >= 0) return LaneAt(node.operands[o]);
    }
    return LaneAt(result);
  }

  // What an operation does, without its operands. A cast and a row reduction of one column convert.
  Result<ElementInstruction> Operation(int index) const {
    const ProgramNode& node = NodeOf(index);
    const Lane lane = LaneOfOperands(node, index);
    ElementInstruction made{.operand_count = static_cast<uint32_t>(node.operand_count),
                            .constants = node.constants};
    if (node.kind == COTUNE_NODE_CAST || IsRowReduction(node.kind)) {
      made.kernel = FindCastKernel(lane, LaneAt(index), IsNarrow(value(index).dtype));
    } else {
      made.kernel = FindElementKernel(node.kind, lane);
    }
    if (made.kernel == nullptr || node.operand_count > 3) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("the host backend has no {}; cast the operands, or leave this "
                              "operation to the caller",
                              Named(node, lane)));
    }
    return made;
  }

  // ---- One number a row.

  ElementInstruction Splat(const ElementOperand& at, Lane lane) const {
    ElementInstruction made{.kernel = FindSplatKernel(lane), .fixed_count = 1, .operand_count = 1};
    made.to = at;
    made.from[0] = at;
    return made;
  }

  void LoadNumber(int input, std::vector<ElementInstruction>& to) {
    ElementInstruction load{
        .kernel = FindLoadKernel(value(input).dtype), .fixed_count = 1, .operand_count = 1};
    load.to = SplatOf(input);
    load.from[0] = InMemory(Base::kInput, static_cast<uint32_t>(input), value(input));
    to.push_back(load);
    to.push_back(Splat(load.to, LaneAt(input)));
  }

  void RoundNumber(int index, std::vector<ElementInstruction>& to) {
    if (!order_.IsRounded(index)) return;
    ElementInstruction round{
        .kernel = FindRoundKernel(value(index).dtype), .fixed_count = 1, .operand_count = 1};
    round.to = SplatOf(index);
    round.from[0] = round.to;
    to.push_back(round);
  }

  Result<void> ComputeNumber(int index, std::vector<ElementInstruction>& to) {
    COTUNE_TRY(auto made, Operation(index));
    const ProgramNode& node = NodeOf(index);
    made.fixed_count = 1;
    made.to = SplatOf(index);
    for (int o = 0; o < node.operand_count; ++o) {
      const Lane lane =
          o == 0 && node.kind == COTUNE_NODE_WHERE ? Lane::kU8 : LaneOfOperands(node, index);
      made.from[o] =
          node.operands[o] < 0 ? LiteralOf(node.literals[o], lane) : SplatOf(node.operands[o]);
    }
    to.push_back(made);
    RoundNumber(index, to);
    to.push_back(Splat(made.to, LaneAt(index)));
    return {};
  }

  // Returns true if the value is an input that is an output as well, and whose lanes do not have
  // all of its bits.
  bool HasBits(int index) const {
    const auto& outputs = program_.outputs;
    return order_.IsInput(index) && IsNarrow(value(index).dtype) &&
           std::find(outputs.begin(), outputs.end(), index) != outputs.end();
  }

  void LoadNumberBits(int input, std::vector<ElementInstruction>& to) {
    bits_[input] = memory_.Take(kSplatBytes);
    ElementInstruction load{
        .kernel = FindCopyKernel(value(input).dtype), .fixed_count = 1, .operand_count = 1};
    load.to = SplatAt(*bits_[input]);
    load.from[0] = InMemory(Base::kInput, static_cast<uint32_t>(input), value(input));
    to.push_back(load);
  }

  void StoreNumber(int index, uint32_t output, std::vector<ElementInstruction>& to) {
    const bool has_bits = HasBits(index);
    const sdk::ValueDtype dtype = value(index).dtype;
    ElementInstruction store{.kernel = has_bits ? FindCopyKernel(dtype) : FindStoreKernel(dtype),
                             .fixed_count = 1,
                             .operand_count = 1};
    store.to = InMemory(Base::kOutput, output, value(index));
    store.from[0] = has_bits ? SplatAt(*bits_[index]) : SplatOf(index);
    to.push_back(store);
  }

  // ---- Blocks.

  struct Pass {
    std::vector<VirtualInstruction> blocks;
    std::vector<ElementInstruction> after;
    std::map<int, bool> is_loaded;
    std::map<int, bool> has_bits;
  };

  // Inputs are loaded once a pass.
  void ReadBlock(int named, Pass& pass, VirtualInstruction& reader, int operand) {
    const int index = order_.RootOf(named);
    ElementInstruction& made = reader.instruction;
    if (!order_.IsWide(index)) {
      made.from[operand] = SplatOf(index);
    } else if (order_.IsKept(index)) {
      made.from[operand] = RowOf(index);
    } else {
      reader.from_register[operand] = index;
    }
    if (!order_.IsWide(index) || !order_.IsInput(index) || pass.is_loaded[index]) return;
    pass.is_loaded[index] = true;
    VirtualInstruction load;
    load.instruction = {.kernel = FindLoadKernel(value(index).dtype), .operand_count = 1};
    load.instruction.from[0] = InMemory(Base::kInput, static_cast<uint32_t>(index), value(index));
    load.to_register = index;
    load.kind = VirtualInstruction::Kind::kLoad;
    load.dtype = value(index).dtype;
    pass.blocks.push_back(load);
  }

  void WriteBlock(int index, VirtualInstruction& writer) {
    if (order_.IsKept(index)) {
      writer.instruction.to = RowOf(index);
    } else {
      writer.to_register = index;
    }
  }

  // The operation as one that others may become part of; 0: not such a one.
  uint32_t JoinableOperation(int index) const {
    const ProgramNode& node = NodeOf(index);
    if (LaneOfOperands(node, index) != Lane::kF32 || LaneAt(index) != Lane::kF32) return 0;
    const bool is_known = node.kind == COTUNE_NODE_ADD || node.kind == COTUNE_NODE_SUB ||
                          node.kind == COTUNE_NODE_MUL || node.kind == COTUNE_NODE_RELU;
    return is_known ? node.kind : 0;
  }

  Result<void> ComputeBlock(int index, Pass& pass) {
    if (order_.RootOf(index) != index) return {};
    COTUNE_TRY(auto made, Operation(index));
    const ProgramNode& node = NodeOf(index);
    VirtualInstruction compute{.instruction = made};
    compute.operation = JoinableOperation(index);
    if (compute.operation != COTUNE_NODE_RELU) compute.joined.first = compute.operation;
    for (int o = 0; o < node.operand_count; ++o) {
      const Lane lane =
          o == 0 && node.kind == COTUNE_NODE_WHERE ? Lane::kU8 : LaneOfOperands(node, index);
      if (node.operands[o] < 0) {
        compute.instruction.from[o] = LiteralOf(node.literals[o], lane);
      } else {
        ReadBlock(node.operands[o], pass, compute, o);
      }
    }
    WriteBlock(index, compute);
    pass.blocks.push_back(compute);
    if (!order_.IsRounded(index)) return {};
    VirtualInstruction round{
        .instruction = {.kernel = FindRoundKernel(value(index).dtype), .operand_count = 1},
        .kind = VirtualInstruction::Kind::kRound,
        .dtype = value(index).dtype};
    ReadBlock(index, pass, round, 0);
    WriteBlock(index, round);
    pass.blocks.push_back(round);
    return {};
  }

  Result<void> ReduceBlock(int index, Pass& pass) {
    const ProgramNode& node = NodeOf(index);
    const int operand = node.operands[0];
    const Lane lane = LaneAt(operand);
    VirtualInstruction leaves{
        .instruction = {.kernel = FindLeafKernel(node.kind, lane), .operand_count = 1},
        .kind = VirtualInstruction::Kind::kLeaves,
        .operation = lane == Lane::kF32 ? node.kind : 0};
    if (leaves.instruction.kernel == nullptr) {
      return Fail(
          COTUNE_UNSUPPORTED,
          fmt::format("the host backend has no {}; cast the operand to f32", Named(node, lane)));
    }
    const uint64_t count = (value(operand).columns + kLeafColumns - 1) / kLeafColumns;
    const size_t bytes = LaneBytes(lane);
    const uint64_t offset = memory_.Take(std::bit_ceil(count) * bytes);
    leaves.instruction.to = {
        .column_shift = 3, .column_bytes = static_cast<uint16_t>(bytes), .offset = offset};
    ReadBlock(operand, pass, leaves, 0);
    pass.blocks.push_back(leaves);
    ElementInstruction fold{.kernel = FindFoldKernel(node.kind, lane),
                            .fixed_count = static_cast<uint32_t>(count)};
    fold.to = SplatAt(offset);
    pass.after.push_back(fold);
    ElementInstruction convert{
        .kernel = FindCastKernel(lane, LaneAt(index), IsNarrow(value(index).dtype)),
        .fixed_count = 1,
        .operand_count = 1};
    convert.to = SplatOf(index);
    convert.from[0] = SplatAt(offset);
    pass.after.push_back(convert);
    RoundNumber(index, pass.after);
    pass.after.push_back(Splat(convert.to, LaneAt(index)));
    return {};
  }

  // The register of an input's bits, which stand beside its lanes.
  int BitsRegister(int input) const { return static_cast<int>(program_.values.size()) + input; }

  // An input is stored from a register, because another store may have overwritten it by then.
  void CopyBlock(int input, uint32_t output, Pass& pass) {
    const ElementKernel kernel = FindCopyKernel(value(input).dtype);
    const ElementInstruction copy{.kernel = kernel, .operand_count = 1};
    if (!pass.has_bits[input]) {
      pass.has_bits[input] = true;
      VirtualInstruction load{.instruction = copy, .to_register = BitsRegister(input)};
      load.kind = VirtualInstruction::Kind::kLoad;
      load.dtype = value(input).dtype;
      load.instruction.from[0] = InMemory(Base::kInput, static_cast<uint32_t>(input), value(input));
      pass.blocks.push_back(load);
    }
    VirtualInstruction store{.instruction = copy,
                             .kind = VirtualInstruction::Kind::kStore,
                             .dtype = value(input).dtype,
                             .overwritten_input = program_.output_into[output]};
    store.instruction.to = InMemory(Base::kOutput, output, value(input));
    store.from_register[0] = BitsRegister(input);
    stores_.push_back(store);
  }

  void StoreBlock(int index, uint32_t output, Pass& pass) {
    if (HasBits(index)) {
      CopyBlock(index, output, pass);
      return;
    }
    const ElementKernel kernel = order_.IsRounded(index)
                                     ? FindStoreRoundedKernel(value(index).dtype)
                                     : FindStoreKernel(value(index).dtype);
    VirtualInstruction store{.instruction = {.kernel = kernel, .operand_count = 1},
                             .kind = VirtualInstruction::Kind::kStore,
                             .dtype = value(index).dtype,
                             .overwritten_input = program_.output_into[output]};
    store.instruction.to = InMemory(Base::kOutput, output, value(index));
    ReadBlock(index, pass, store, 0);
    // Loads that the store needed are in front of it, and in front of every other store.
    stores_.push_back(store);
  }

  // ---- Loops.

  ElementPass Finish(uint64_t columns, Pass& pass) {
    std::vector<size_t> lane_bytes;
    for (int v = 0; v < static_cast<int>(program_.values.size()); ++v) {
      lane_bytes.push_back(LaneBytesAt(v));
    }
    for (int input = 0; input < program_.input_count; ++input) {
      lane_bytes.push_back(sdk::ElementBytes(value(input).dtype));
    }
    ElementPass made{.columns = columns, .after = std::move(pass.after)};
    JoinInstructions(pass.blocks);
    made.blocks = AssignRegisters(pass.blocks, lane_bytes, registers_);
    return made;
  }

  // The single values of a level, and the blocks of each number of columns.
  Result<void> PlanLevel(uint32_t kind, int level, ElementLoop& loop) {
    ElementPass numbers;
    if (level == 0) {
      for (int v = 0; v < program_.input_count; ++v) {
        if (value(v).rows_kind != kind || order_.IsWide(v)) continue;
        LoadNumber(v, numbers.before);
        if (HasBits(v)) LoadNumberBits(v, numbers.before);
      }
    }
    std::map<uint64_t, Pass> passes;
    for (int v = program_.input_count; v < static_cast<int>(program_.values.size()); ++v) {
      // Nothing reads a copy, see WithoutCopies.
      if (value(v).rows_kind != kind || sdk::IsCopyOfInput(program_, v)) continue;
      Result<void> made;
      if (!order_.ReadsBlocks(v)) {
        if (order_.LevelOf(v) == level) made = ComputeNumber(v, numbers.before);
      } else if (order_.LevelOfPass(v) == level) {
        Pass& pass = passes[value(order_.ReducesBlocks(v) ? NodeOf(v).operands[0] : v).columns];
        made = order_.ReducesBlocks(v) ? ReduceBlock(v, pass) : ComputeBlock(v, pass);
      }
      if (!made) return made;
    }
    StoreLevel(kind, level, numbers, passes);
    if (!numbers.before.empty()) loop.passes.push_back(std::move(numbers));
    for (auto& [columns, pass] : passes) {
      loop.passes.push_back(Finish(columns, pass));
    }
    return {};
  }

  void StoreLevel(uint32_t kind, int level, ElementPass& numbers,
                  std::map<uint64_t, Pass>& passes) {
    if (kind == COTUNE_ROWS_ONE) return;
    std::map<uint64_t, std::vector<VirtualInstruction>> stores;
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      const int output = program_.outputs[o];
      if (value(output).rows_kind != kind || order_.StoreLevelOf(o) != level) continue;
      if (!order_.IsWide(output)) {
        StoreNumber(output, static_cast<uint32_t>(o), numbers.before);
      } else {
        StoreBlock(output, static_cast<uint32_t>(o), passes[value(output).columns]);
        stores[value(output).columns].push_back(stores_.back());
        stores_.pop_back();
      }
    }
    for (auto& [columns, all] : stores) {
      auto& blocks = passes[columns].blocks;
      blocks.insert(blocks.end(), all.begin(), all.end());
    }
  }

  Result<void> PlanLoop(uint32_t kind, ElementLoop& loop) {
    loop.rows_kind = kind;
    loop.is_flat = order_.IsFlat(kind);
    int levels = 0;
    loop.rows = kind == COTUNE_ROWS_ONE ? 1 : 0;
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& each = program_.values[v];
      if (each.rows_kind != kind) continue;
      levels = std::max({levels, order_.LevelOf(v), order_.LastLevelOfUse(v)});
      loop.rows = each.rows;
      loop.columns = each.columns;
    }
    for (int level = 0; level <= levels; ++level) {
      if (auto planned = PlanLevel(kind, level, loop); !planned) return planned;
    }
    return {};
  }

  void PlanSingleStores() {
    plan_.single_stores.rows = 1;
    ElementPass numbers;
    std::map<uint64_t, Pass> passes;
    std::map<uint64_t, std::vector<VirtualInstruction>> stores;
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      const int output = program_.outputs[o];
      if (!order_.IsSingle(output)) continue;
      if (!order_.IsWide(output)) {
        StoreNumber(output, static_cast<uint32_t>(o), numbers.before);
      } else {
        StoreBlock(output, static_cast<uint32_t>(o), passes[value(output).columns]);
        stores[value(output).columns].push_back(stores_.back());
        stores_.pop_back();
      }
    }
    if (!numbers.before.empty()) plan_.single_stores.passes.push_back(std::move(numbers));
    for (auto& [columns, pass] : passes) {
      pass.blocks.insert(pass.blocks.end(), stores[columns].begin(), stores[columns].end());
      plan_.single_stores.passes.push_back(Finish(columns, pass));
    }
  }

  const Program& program_;
  const PartAnalysis order_;
  std::vector<std::optional<uint64_t>> splat_;
  std::vector<std::optional<uint64_t>> row_;
  std::vector<std::optional<uint64_t>> bits_;  // the bits of numbers, see HasBits
  std::vector<VirtualInstruction> stores_;
  OwnMemory memory_;
  Registers registers_;
  ElementPlan plan_;
};

}  // namespace

Result<ElementPlan> PlanElements(const Program& program) { return Planner(program).Plan(); }

}  // namespace cotune::host
