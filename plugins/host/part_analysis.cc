#include "plugins/host/part_analysis.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using sdk::ProgramNode;
using sdk::Value;

}  // namespace

bool IsRowReduction(uint32_t kind) {
  return kind == COTUNE_NODE_ROW_SUM || kind == COTUNE_NODE_ROW_MAX;
}

bool IsNarrow(sdk::ValueDtype dtype) { return sdk::IsNarrowFloat(dtype); }

PartAnalysis::PartAnalysis(const sdk::Program& program)
    : program_(program),
      root_(program.values.size()),
      level_(program.values.size(), 0),
      last_use_(program.values.size(), -1),
      store_level_(program.outputs.size(), 0) {
  SetRoots();
  SetUses();
  SetStoreLevels();
}

bool PartAnalysis::IsRounded(int index) const { return sdk::IsRoundedForReaders(program_, index); }

bool PartAnalysis::HasLoop(uint32_t rows_kind) const {
  return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                     [&](int output) { return value(output).rows_kind == rows_kind; });
}

bool PartAnalysis::IsFlat(uint32_t rows_kind) const {
  std::optional<bool>& known = is_flat_[rows_kind];
  if (!known) known = FindFlat(rows_kind);
  return *known;
}

bool PartAnalysis::FindFlat(uint32_t rows_kind) const {
  if (rows_kind == COTUNE_ROWS_ONE) return false;
  std::optional<uint64_t> columns;
  for (const Value& each : program_.values) {
    if (each.rows_kind != rows_kind) continue;
    if (columns && *columns != each.columns) return false;
    columns = each.columns;
  }
  for (size_t n = 0; n < program_.nodes.size(); ++n) {
    const ProgramNode& node = program_.nodes[n];
    if (program_.values[program_.input_count + n].rows_kind != rows_kind) continue;
    if (IsRowReduction(node.kind) && columns != 1) return false;
    for (int o = 0; o < node.operand_count; ++o) {
      if (node.operands[o] >= 0 && IsSingle(node.operands[o]) &&
          value(node.operands[o]).columns != 1) {
        return false;
      }
    }
  }
  return true;
}

bool PartAnalysis::ReadsBlocks(int index) const {
  const ProgramNode& node = NodeOf(index);
  return IsWide(index) || (IsRowReduction(node.kind) && IsWide(node.operands[0]));
}

bool PartAnalysis::SharesLanes(int index) const {
  if (IsInput(index) || IsSingle(index) || !IsWide(index) || IsRounded(index)) return false;
  const ProgramNode& node = NodeOf(index);
  const int operand = node.operands[0];
  return node.kind == COTUNE_NODE_CAST && operand >= 0 && IsWide(operand) &&
         value(operand).rows_kind == value(index).rows_kind && LaneAt(operand) == LaneAt(index);
}

void PartAnalysis::SetRoots() {
  for (int v = 0; v < static_cast<int>(program_.values.size()); ++v) {
    root_[v] = SharesLanes(v) ? root_[NodeOf(v).operands[0]] : v;
  }
}

void PartAnalysis::SetUses() {
  for (int v = program_.input_count; v < static_cast<int>(program_.values.size()); ++v) {
    const ProgramNode& node = NodeOf(v);
    for (int o = 0; o < node.operand_count; ++o) {
      const int operand = node.operands[o];
      if (operand < 0) continue;
      const bool in_loop = value(operand).rows_kind == value(v).rows_kind;
      if (in_loop) level_[v] = std::max(level_[v], level_[operand]);
    }
    if (ReducesBlocks(v)) ++level_[v];
    if (!ReadsBlocks(v) || root_[v] != v) continue;
    for (int o = 0; o < node.operand_count; ++o) {
      const int operand = node.operands[o];
      if (operand < 0 || value(operand).rows_kind != value(v).rows_kind) continue;
      int& last_use = last_use_[root_[operand]];
      last_use = std::max(last_use, LevelOfPass(v));
    }
  }
}

// Levels of stores raise those of uses, so they are raised until all hold.
void PartAnalysis::SetStoreLevels() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      const int output = program_.outputs[o];
      const int into = program_.output_into[o];
      int level = std::max(store_level_[o], level_[output]);
      if (into >= 0) level = std::max(level, last_use_[into]);
      int& last_use = last_use_[root_[output]];
      if (level != store_level_[o] || last_use < level) changed = true;
      store_level_[o] = level;
      last_use = std::max(last_use, level);
    }
  }
}

}  // namespace cotune::host
