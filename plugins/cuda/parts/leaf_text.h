// The text of what one thread computes with a leaf of a stage, which stages without and with row
// reductions share. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_LEAF_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_LEAF_TEXT_H_

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/cuda/parts/row_split.h"
#include "plugins/cuda/parts/stage_runs.h"
#include "plugins/cuda/parts/text_writer.h"
#include "plugins/cuda/parts/value_text.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// The number of rows of a kind, in a kernel.
inline const char* RowsText(uint32_t rows_kind) {
  switch (rows_kind) {
    case COTUNE_ROWS_ALL:
      return "a.rows";
    case COTUNE_ROWS_SHARE:
      return "a.share_rows";
    default:
      return "1ull";
  }
}

// Registers for outputs of one leaf.
inline constexpr size_t kOutputWordsMax = 48;

// Writes the pieces of which the texts of all stages consist. The program and the stage outlive it.
class LeafText {
 protected:
  using Program = sdk::Program;
  using ProgramNode = sdk::ProgramNode;
  using Value = sdk::Value;

  LeafText(const Program& program, const PartStage& stage, TextWriter& to)
      : program_(sdk::WithoutCopies(program)),
        stage_(stage),
        levels_(LevelsOf(program_)),
        to_(to) {}
  const Value& value(int index) const { return program_.values[static_cast<size_t>(index)]; }
  bool IsInput(int index) const { return index < program_.input_count; }
  int LevelOf(int index) const { return levels_[static_cast<size_t>(index)]; }
  // Computed for each column; all others are one number a row.
  bool IsWide(int index) const {
    if (stage_.kind != StageKind::kElements) return value(index).columns > 1;
    return value(index).rows_kind == stage_.rows_kind && value(index).columns == stage_.columns;
  }
  bool IsSingle(int index) const { return value(index).rows_kind == COTUNE_ROWS_ONE; }
  // Equal in all rows of the stage, so that it is loaded once.
  bool IsShared(int index) const { return IsSingle(index) && stage_.rows_kind != COTUNE_ROWS_ONE; }
  int OutputValue(size_t output) const { return program_.outputs[output]; }
  size_t OutputOperand(size_t output) const {
    return static_cast<size_t>(program_.input_count) + output;
  }
  // The address of an operand. The stages of a run have other operands, by the number of the stage.
  std::string OperandText(size_t operand) const {
    if (steps_ == nullptr) return fmt::format("a.operands[{}]", operand);
    const OperandStep& at = (*steps_)[operand];
    if (at.step == 0) return fmt::format("a.operands[{}]", at.first);
    const char sign = at.step < 0 ? '-' : '+';
    return fmt::format("a.operands[{} {} {} * number]", at.first, sign, std::abs(at.step));
  }

  // The wide values that targets are computed from, up to numbers of a row, and to `known`.
  std::vector<int> WideValuesOf(const std::vector<int>& targets,
                                const std::set<int>& known = {}) const {
    std::set<int> needed(targets.begin(), targets.end());
    for (auto at = needed.rbegin(); at != needed.rend(); ++at) {
      if (IsInput(*at)) break;
      if (known.count(*at) != 0) continue;
      const ProgramNode& node = NodeOf(program_, *at);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[o] >= 0 && IsWide(node.operands[o])) needed.insert(node.operands[o]);
      }
    }
    return {needed.begin(), needed.end()};
  }

  // ---- Numbers of a row ----

  void LoadNumber(int index) {
    to_.Line("const {} {} = {};", LaneText(value(index).dtype), ValueName(index),
             NumberText(index, "true"));
  }
  // A number of a row as a member of a struct; with its bits, if it is an output as well.
  void DeclareNumber(int index) {
    if (HasNumberCopy(index)) {
      const bool is_wide = sdk::ElementBytes(value(index).dtype) == 8;
      to_.Line("unsigned {} {};", is_wide ? "long long" : "int", BitsName(index));
    }
    to_.Line("{} {};", LaneText(value(index).dtype), ValueName(index));
  }
  void SetNumber(int index, const char* is_there) {
    if (!HasNumberCopy(index)) {
      return to_.Line("{} = {};", ValueName(index), NumberText(index, is_there));
    }
    to_.Line("{} = LoadBitsOfOne<{}>({}, {}, {});", BitsName(index), DtypeText(value(index).dtype),
             OperandText(static_cast<size_t>(index)), IsSingle(index) ? "0" : "row", is_there);
    to_.Line("{} = {}::FromBits({});", ValueName(index), DtypeText(value(index).dtype),
             BitsName(index));
  }
  // Loads a number that is an input.
  std::string NumberText(int index, const char* is_there) const {
    return fmt::format("LoadOne<{}>({}, {}, {})", DtypeText(value(index).dtype),
                       OperandText(static_cast<size_t>(index)), IsSingle(index) ? "0" : "row",
                       is_there);
  }
  // Returns true if the number, which is an input, is an output as well.
  bool HasNumberCopy(int index) const {
    return stage_.kind == StageKind::kRows &&
           std::any_of(stage_.outputs.begin(), stage_.outputs.end(),
                       [&](size_t o) { return OutputValue(o) == index; });
  }
  void ComputeNumber(int index) {
    to_.Line("const {} {} = {};", LaneText(value(index).dtype), ValueName(index),
             ExpressionText(program_, index));
  }

  // ---- Values of a leaf ----

  // The index of the leaf's first element in an array of the value's type; arrays of one row are
  // the same for all rows.
  std::string FirstText(int index) const {
    if (stage_.kind == StageKind::kElements || IsSingle(index)) return "column";
    return fmt::format("row * {}ull + column", value(index).columns);
  }
  void LoadLeaf(int index, const char* to, const char* is_aligned) {
    to_.Line("{} = LoadLeaf<{}, {}>({}, {}, count);", to, DtypeText(value(index).dtype), is_aligned,
             OperandText(static_cast<size_t>(index)), FirstText(index));
  }
  // One element of each value, in the loop over i. A value that is rounded and stored has its bits
  // beside it, because the compiler does not see that rounding it once more changes nothing.
  void ComputeElements(const std::vector<int>& values, const std::set<int>& stored = {}) {
    for (const int v : values) {
      const char* const dtype = DtypeText(value(v).dtype);
      std::string text = IsInput(v) ? fmt::format("in{}.Get(i)", v) : ExpressionText(program_, v);
      const bool is_kept = kept_.count(v) != 0;
      if (whole_.count(v) != 0) {
        text = fmt::format("leaf{}.Get(i)", v);
      } else if (is_kept && IsSumOfLeaves(v)) {
        to_.Line("const unsigned int {} = leaf{}.Bits(i);", BitsName(v), v);
        text = fmt::format("{}::FromBits({})", dtype, BitsName(v));
      } else if (is_kept || (stored.count(v) != 0 && HasBits(v))) {
        const std::string bits =
            fmt::format("RoundedBits<{}>({})", dtype, UnroundedText(program_, v));
        if (is_kept && is_tail_) {
          to_.Line("const unsigned int {} = kept{}[j].Bits(i);", BitsName(v), v);
        } else if (is_kept && written_.count(v) != 0) {
          to_.Line("const unsigned int {} = kHolds ? kept{}[j].Bits(i) : {};", BitsName(v), v,
                   bits);
        } else {
          to_.Line("const unsigned int {} = {};", BitsName(v), bits);
          if (is_kept) to_.Line("if constexpr (kHolds) kept{}[j].SetBits(i, {});", v, BitsName(v));
        }
        text = fmt::format("{}::FromBits({})", dtype, BitsName(v));
      }
      to_.Line("const {} {} = {};", LaneText(value(v).dtype), ValueName(v), text);
    }
  }
  // Returns true if the value is a sum of two inputs of its dtype: whole leaves are added, which
  // takes fewer instructions than adding and rounding their elements.
  bool IsSumOfLeaves(int index) const {
    const ProgramNode& node = NodeOf(program_, index);
    const sdk::ValueDtype dtype = value(index).dtype;
    const auto is_leaf = [&](int operand) {
      return operand >= 0 && IsInput(operand) && IsWide(operand) && value(operand).dtype == dtype;
    };
    return node.kind == COTUNE_NODE_ADD && sdk::ElementBytes(dtype) == 2 &&
           is_leaf(node.operands[0]) && is_leaf(node.operands[1]);
  }
  // Computes all values that can be computed as whole leaves, which takes fewer instructions than
  // their elements: sums of 16-bit floats that are leaves, and ReLUs of such sums.
  void ComputeWholeLeaves(const std::vector<int>& values) {
    for (const int v : values) {
      if (!IsOfWholeLeaves(v)) continue;
      whole_.insert(v);
      const ProgramNode& node = NodeOf(program_, v);
      const std::string first = LeafName(node.operands[0]);
      to_.Line("const Leaf<{}> {} = {};", DtypeText(value(v).dtype), LeafName(v),
               node.kind == COTUNE_NODE_ADD
                   ? fmt::format("SumOf({}, {})", first, LeafName(node.operands[1]))
                   : fmt::format("ReluOf({})", first));
    }
  }
  bool IsOfWholeLeaves(int index) const {
    if (IsInput(index) || !IsWide(index)) return false;
    const ProgramNode& node = NodeOf(program_, index);
    const sdk::ValueDtype dtype = value(index).dtype;
    const auto is_sum = [&](int operand) { return whole_.count(operand) != 0; };
    const auto is_leaf = [&](int operand) {
      if (operand < 0 || value(operand).dtype != dtype) return false;
      return IsInput(operand) ? IsWide(operand) : is_sum(operand);
    };
    if (dtype != sdk::ValueDtype::kF16 && dtype != sdk::ValueDtype::kBf16) return false;
    if (!MayBeRounded(index)) return false;
    // Clearing the negative halves keeps the bits of NaN. All NaNs of computed sums have the same
    // bits, which a ReLU in f32 would give, too; a NaN that is an input may have others.
    if (node.kind == COTUNE_NODE_RELU) return is_sum(node.operands[0]);
    return node.kind == COTUNE_NODE_ADD && is_leaf(node.operands[0]) && is_leaf(node.operands[1]);
  }
  // Returns true if the value may be rounded to its dtype before it is read. A ReLU of a sum of
  // such floats has the same bits if the sum was rounded before, because a sum that is not zero
  // never rounds to zero.
  bool MayBeRounded(int index) const {
    if (HasBits(index)) return true;
    for (int v = index + 1; v < static_cast<int>(program_.values.size()); ++v) {
      if (IsInput(v)) continue;
      const ProgramNode& node = NodeOf(program_, v);
      const auto end = node.operands.begin() + node.operand_count;
      if (std::find(node.operands.begin(), end, index) == end) continue;
      if (node.kind != COTUNE_NODE_RELU || !MayBeRounded(v)) return false;
    }
    return true;
  }
  std::string LeafName(int index) const {
    return fmt::format("{}{}", IsInput(index) ? "in" : "leaf", index);
  }
  // The values of which a whole leaf is there before the loop over its elements.
  std::set<int> WholeLeaves() const {
    std::set<int> whole = LeafSums();
    whole.insert(whole_.begin(), whole_.end());
    return whole;
  }
  // The kept values that are such sums.
  std::set<int> LeafSums() const {
    std::set<int> sums;
    for (const int v : kept_) {
      if (IsSumOfLeaves(v)) sums.insert(v);
    }
    return sums;
  }
  void AddLeaves(const std::vector<int>& values) {
    for (const int v : LeafSums()) {
      if (std::find(values.begin(), values.end(), v) == values.end()) continue;
      const ProgramNode& node = NodeOf(program_, v);
      const std::string sum = fmt::format("SumOf(in{}, in{})", node.operands[0], node.operands[1]);
      const bool is_there = written_.count(v) != 0;
      const std::string kept = fmt::format("kept{}[j]", v);
      to_.Line("const Leaf<{}> leaf{} = {};", DtypeText(value(v).dtype), v,
               is_tail_   ? kept
               : is_there ? fmt::format("kHolds ? {} : {}", kept, sum)
                          : sum);
      if (!is_there) to_.Line("if constexpr (kHolds) kept{}[j] = leaf{};", v, v);
    }
  }
  std::set<int> Carried() const { return {split_->carried}; }
  bool HasBits(int index) const { return sdk::IsRoundedForReaders(program_, index); }
  static std::string BitsName(int index) { return fmt::format("bits{}", index); }
  // Outputs that are computed together: more would not fit into the registers.
  std::vector<std::vector<size_t>> OutputGroups(const std::vector<size_t>& outputs) const {
    std::vector<std::vector<size_t>> groups;
    size_t words = 0;
    for (const size_t o : outputs) {
      const size_t of_leaf = LeafWords(OutputValue(o));
      words += of_leaf;
      if (groups.empty() || words > kOutputWordsMax) {
        groups.emplace_back();
        words = of_leaf;
      }
      groups.back().push_back(o);
    }
    return groups;
  }
  void StoreLeaf(size_t output, const std::string& leaf) {
    if (returns_output_) return to_.Line("return {};", leaf);
    const int v = OutputValue(output);
    to_.Line("StoreLeaf<{}, kIsAligned>({}, {}, count, {});", DtypeText(value(v).dtype),
             OperandText(OutputOperand(output)), FirstText(v), leaf);
  }
  // Inputs were loaded, so that outputs may overwrite them. An output that is an input is stored as
  // it was loaded, which keeps its bits.
  void WriteOutputs(const std::vector<size_t>& outputs) {
    std::vector<size_t> computed;
    for (const size_t o : outputs) {
      if (IsInput(OutputValue(o)) || whole_.count(OutputValue(o)) != 0) {
        StoreLeaf(o, LeafName(OutputValue(o)));
      } else {
        computed.push_back(o);
      }
    }
    const auto groups = OutputGroups(computed);
    for (const std::vector<size_t>& group : groups) {
      if (groups.size() > 1) to_.Open("{{");
      std::vector<int> targets;
      for (const size_t o : group) {
        to_.Line("Leaf<{}> out{};", DtypeText(value(OutputValue(o)).dtype), o);
        targets.push_back(OutputValue(o));
      }
      OpenElementLoop();
      ComputeElements(WideValuesOf(targets, is_tail_ ? Carried() : WholeLeaves()),
                      {targets.begin(), targets.end()});
      for (const size_t o : group) {
        const int v = OutputValue(o);
        to_.Line("out{}.{}(i, {});", o, HasBits(v) ? "SetBits" : "Set",
                 HasBits(v) ? BitsName(v) : ValueName(v));
      }
      to_.Close();
      for (const size_t o : group) StoreLeaf(o, fmt::format("out{}", o));
      if (groups.size() > 1) to_.Close();
    }
  }
  void OpenElementLoop() {
    to_.Unroll();
    to_.Open("for (int i = 0; i < kLeafColumns; ++i) {{");
  }

  void CloseStruct() {
    to_.Close("};");
    to_.Blank();
  }
  uint64_t LeafWords(int index) const {
    return kLeafColumns * sdk::ElementBytes(value(index).dtype) / 4;
  }

  const Program program_;
  const PartStage& stage_;
  const std::vector<int> levels_;
  TextWriter& to_;
  bool returns_output_ = false;  // instead of storing it
  int given_ = -1;               // the input of which leaves are given
  const RowSplit* split_ = nullptr;
  const std::vector<OperandStep>* steps_ = nullptr;  // not null: the stage begins a run
  bool is_tail_ = false;   // what is written now follows from the carried value of the split
  std::set<int> kept_;     // values that a thread keeps from one pass over a row to the next
  std::set<int> whole_;    // values that are computed as whole leaves
  std::set<int> written_;  // the wide values of the passes that have been written
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_LEAF_TEXT_H_
