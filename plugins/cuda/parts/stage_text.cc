#include "plugins/cuda/parts/stage_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cuda/parts/value_text.h"

namespace cotune::cuda {
namespace {

using sdk::Program;
using sdk::ProgramNode;
using sdk::Value;

const char* RowsText(uint32_t rows_kind) {
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
constexpr size_t kOutputWordsMax = 48;

// The text of one stage.
class StageText {
 public:
  StageText(const Program& program, const PartStage& stage, size_t number, bool is_alone,
            TextWriter& to)
      : program_(sdk::WithoutCopies(program)),
        stage_(stage),
        number_(number),
        is_alone_(is_alone),
        levels_(LevelsOf(program_)),
        to_(to) {}

  void Write() {
    if (stage_.kind == StageKind::kRows) {
      WriteRows();
    } else {
      WriteElements();
    }
  }

  void WriteSource() {
    returns_output_ = true;
    OpenLeafStruct("Source");
    to_.Line("template <bool kIsAligned>");
    to_.Open("__device__ __forceinline__ Leaf<{}> At({}) const {{",
             DtypeText(value(OutputValue(0)).dtype), kLeafParameters);
    LoadElements();
    WriteOutputs(stage_.outputs);
    to_.Close();
    CloseStruct();
  }

  void WriteSink() {
    given_ = 0;
    OpenLeafStruct("Sink");
    WriteOperandsOfSink();
    to_.Line("template <bool kIsAligned>");
    to_.Open("__device__ __forceinline__ Operands Load({}) const {{", kLeafParameters);
    to_.Line("Operands loaded;");
    ForOperandsOfSink([&](int v) {
      if (IsWide(v)) {
        LoadLeaf(v, fmt::format("loaded.in{}", v).c_str(), "kIsAligned");
      } else {
        to_.Line("loaded.{} = {};", ValueName(v), NumberText(v, "true"));
      }
    });
    to_.Line("return loaded;");
    to_.Close();
    to_.Line("template <bool kIsAligned>");
    to_.Open(
        "__device__ __forceinline__ void Finish({}, const Operands& loaded, const Leaf<{}>& in0) "
        "const {{",
        kLeafParameters, DtypeText(value(0).dtype));
    ForOperandsOfSink([&](int v) {
      if (IsWide(v)) {
        to_.Line("const Leaf<{}>& in{} = loaded.in{};", DtypeText(value(v).dtype), v, v);
      } else {
        to_.Line("const {} {} = loaded.{};", LaneText(value(v).dtype), ValueName(v), ValueName(v));
      }
    });
    for (const int v : stage_.values) {
      if (!IsWide(v) && !IsInput(v)) ComputeNumber(v);
    }
    WriteOutputs(stage_.outputs);
    to_.Close();
    CloseStruct();
  }

  void WriteRowSink() {
    given_ = 0;
    PlanPasses();
    WriteRowStruct("RowSink", "SinkOperands");
  }

  void WriteSplitRowSink(const RowSplit& split) {
    given_ = 0;
    split_ = &split;
    PlanPasses();
    WriteSplitStruct();
  }

 private:
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
    to_.Line("{} = LoadBitsOfOne<{}>(a.operands[{}], {}, {});", BitsName(index),
             DtypeText(value(index).dtype), index, IsSingle(index) ? "0" : "row", is_there);
    to_.Line("{} = {}::FromBits({});", ValueName(index), DtypeText(value(index).dtype),
             BitsName(index));
  }
  // Loads a number that is an input.
  std::string NumberText(int index, const char* is_there) const {
    return fmt::format("LoadOne<{}>(a.operands[{}], {}, {})", DtypeText(value(index).dtype), index,
                       IsSingle(index) ? "0" : "row", is_there);
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
    to_.Line("{} = LoadLeaf<{}, {}>(a.operands[{}], {}, count);", to, DtypeText(value(index).dtype),
             is_aligned, index, FirstText(index));
  }
  // One element of each value, in the loop over i. What is rounded and stored has its bits beside
  // it, because the compiler does not see that rounding it once more changes nothing.
  void ComputeElements(const std::vector<int>& values, const std::set<int>& stored = {}) {
    for (const int v : values) {
      const char* const dtype = DtypeText(value(v).dtype);
      std::string text = IsInput(v) ? fmt::format("in{}.Get(i)", v) : ExpressionText(program_, v);
      const bool is_kept = kept_.count(v) != 0;
      if (is_kept && IsSumOfLeaves(v)) {
        to_.Line("const unsigned int {} = leaf{}.Bits(i);", BitsName(v), v);
        text = fmt::format("{}::FromBits({})", dtype, BitsName(v));
      } else if (is_kept || (stored.count(v) != 0 && HasBits(v))) {
        const std::string bits = fmt::format("{}::ToBits({})", dtype, UnroundedText(program_, v));
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
    to_.Line("StoreLeaf<{}, kIsAligned>(a.operands[{}], {}, count, {});", DtypeText(value(v).dtype),
             OutputOperand(output), FirstText(v), leaf);
  }
  // Inputs were loaded, so that outputs may overwrite them. An output that is an input is stored as
  // it was loaded, which keeps its bits.
  void WriteOutputs(const std::vector<size_t>& outputs) {
    std::vector<size_t> computed;
    for (const size_t o : outputs) {
      if (IsInput(OutputValue(o))) {
        StoreLeaf(o, fmt::format("in{}", OutputValue(o)));
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
      ComputeElements(WideValuesOf(targets, is_tail_ ? Carried() : LeafSums()),
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

  // ---- Stages without reductions ----

  void WriteElements() {
    to_.Open("struct Stage{} {{", number_);
    to_.Line("const Arguments& a;");
    to_.Line("template <bool kIsAligned>");
    to_.Open("__device__ __forceinline__ void At({}) const {{", kLeafParameters);
    LoadElements();
    WriteOutputs(stage_.outputs);
    to_.Close();
    CloseStruct();
  }
  // Defines all that outputs are computed from, but for the values of the elements themselves.
  void LoadElements() {
    for (const int v : WideInputsOfOutputs()) {
      const std::string leaf = fmt::format("const Leaf<{}> in{}", DtypeText(value(v).dtype), v);
      LoadLeaf(v, leaf.c_str(), "kIsAligned");
    }
    for (const int v : stage_.values) {
      if (IsWide(v)) continue;
      if (IsInput(v)) {
        LoadNumber(v);
      } else {
        ComputeNumber(v);
      }
    }
  }
  std::vector<int> WideInputsOfOutputs() const {
    std::vector<int> targets;
    for (const size_t o : stage_.outputs) targets.push_back(OutputValue(o));
    std::vector<int> inputs;
    for (const int v : WideValuesOf(targets)) {
      if (IsInput(v)) inputs.push_back(v);
    }
    return inputs;
  }

  // ---- The two sides of a region's collective ----

  static constexpr char kLeafParameters[] =
      "unsigned long long row, unsigned long long column, unsigned int count";

  void OpenLeafStruct(const char* name) {
    to_.Open("struct {} {{", name);
    to_.Line("static constexpr bool kHasPlaces = {};",
             stage_.kind == StageKind::kLeaves ? "true" : "false");
    to_.Line("{}Operands a;", name);
  }
  void CloseStruct() {
    to_.Close("};");
    to_.Blank();
  }
  // The inputs of the stage but for the leaf that is given, wide ones first.
  template <typename Visit>
  void ForOperandsOfSink(Visit visit) const {
    for (const int v : WideInputsOfOutputs()) {
      if (v != given_) visit(v);
    }
    for (const int v : stage_.values) {
      if (IsInput(v) && !IsWide(v)) visit(v);
    }
  }
  void WriteOperandsOfSink() {
    to_.Open("struct Operands {{");
    ForOperandsOfSink([&](int v) {
      if (IsWide(v)) {
        to_.Line("Leaf<{}> in{};", DtypeText(value(v).dtype), v);
      } else {
        to_.Line("{} {};", LaneText(value(v).dtype), ValueName(v));
      }
    });
    to_.Close("};");
  }

  // ---- Stages with reductions ----

  // What one pass over the columns computes: the numbers of a level, or the outputs.
  struct Pass {
    uint64_t columns = 0;
    std::vector<int> reductions;
    std::vector<size_t> outputs;
    std::vector<int> targets;  // the wide values that it is for
    std::vector<int> values;   // and those that they are computed from
  };

  // Finds the values of a pass from what it computes.
  void SetTargets(Pass& pass) const {
    pass.targets.clear();
    for (const int v : pass.reductions) pass.targets.push_back(NodeOf(program_, v).operands[0]);
    for (const size_t o : pass.outputs) pass.targets.push_back(OutputValue(o));
    const bool is_of_tail = split_ != nullptr && !pass.outputs.empty();
    pass.values = WideValuesOf(pass.targets, is_of_tail ? Carried() : std::set<int>());
  }
  std::set<int> Carried() const { return {split_->carried}; }
  static std::vector<Pass> InOrder(const std::map<uint64_t, Pass>& by_columns) {
    std::vector<Pass> passes;
    passes.reserve(by_columns.size());
    for (const auto& [columns, pass] : by_columns) passes.push_back(pass);
    return passes;
  }
  Pass& PassOf(uint64_t columns, std::map<uint64_t, Pass>& by_columns) const {
    Pass& pass = by_columns[columns];
    pass.columns = columns;
    return pass;
  }

  // The passes of a level: one for each number of columns that its reductions have.
  std::vector<Pass> PassesOf(int level) const {
    std::map<uint64_t, Pass> by_columns;
    for (const int v : stage_.values) {
      if (!ReducesColumns(program_, v) || LevelOf(v) != level + 1) continue;
      const uint64_t columns = value(NodeOf(program_, v).operands[0]).columns;
      PassOf(columns, by_columns).reductions.push_back(v);
    }
    for (auto& [columns, pass] : by_columns) SetTargets(pass);
    return InOrder(by_columns);
  }
  std::vector<Pass> OutputPasses() const {
    std::map<uint64_t, Pass> by_columns;
    for (const size_t o : stage_.outputs) {
      if (!IsWide(OutputValue(o))) continue;
      PassOf(value(OutputValue(o)).columns, by_columns).outputs.push_back(o);
    }
    for (auto& [columns, pass] : by_columns) SetTargets(pass);
    return InOrder(by_columns);
  }

  void PlanPasses() {
    for (const int v : stage_.values) last_level_ = std::max(last_level_, LevelOf(v));
    for (int level = 0; level < last_level_; ++level) passes_of_levels_.push_back(PassesOf(level));
    passes_of_levels_.push_back(OutputPasses());
    if (split_ != nullptr) {
      if (!IsInput(split_->carried)) kept_ = Carried();
      return;
    }
    if (given_ >= 0) StoreEarly();
    FindKept();
  }

  // Moves outputs that depend on no reduction into a pass that reduces their columns, so that they
  // are on their way to memory meanwhile. Parts keep them to the end, because a pass that does not
  // hold its inputs loads them again, and an output may overwrite one.
  void StoreEarly() {
    std::vector<Pass>& last = passes_of_levels_.back();
    for (Pass& pass : last) {
      for (Pass& first : passes_of_levels_.front()) {
        if (&first == &pass || first.columns != pass.columns) continue;
        std::vector<size_t> late;
        for (const size_t o : pass.outputs) {
          (LevelOf(OutputValue(o)) == 0 ? first.outputs : late).push_back(o);
        }
        pass.outputs = std::move(late);
        SetTargets(pass);
        SetTargets(first);
      }
    }
    std::erase_if(last, [](const Pass& pass) { return pass.outputs.empty(); });
  }

  // A struct that computes one row after the other, and a function that walks over all of them.
  void WriteRows() {
    PlanPasses();
    const std::string rows = fmt::format("Rows{}", number_);
    WriteRowStruct(rows, "const Arguments&");
    to_.Line("template <bool kIsArrayAligned>");
    to_.Open("__device__ __forceinline__ void Stage{}(const Arguments& a, RowMemory& memory{}) {{",
             number_, is_alone_ ? "" : ", const StageBlocks& blocks");
    to_.Line("ForEachRow({}<kIsArrayAligned>(a), RowWalk({}{}), memory);", rows,
             RowsText(stage_.rows_kind), is_alone_ ? "" : ", blocks");
    to_.Close();
    to_.Blank();
  }

  // The struct that computes a row in three steps, with what a thread keeps between them. If a
  // value is given, the caller sets its leaves before the last step.
  void WriteRowStruct(const std::string& name, const char* operands) {
    OpenRowStruct(name, operands);
    to_.Open("__device__ __forceinline__ void LoadRow(unsigned long long row, bool is_there) {{");
    LoadHeld(false);
    for (const int v : Numbers(false)) SetNumber(v, "is_there");
    to_.Close();
    to_.Open(
        "__device__ __forceinline__ void Finish(unsigned long long row, bool is_there, RowMemory& "
        "memory) {{");
    for (int level = 0; level <= last_level_; ++level) WriteLevel(level);
    StoreNumbers();
    to_.Close();
    CloseStruct();
  }
  // The struct up to LoadShared.
  void OpenRowStruct(const std::string& name, const char* operands) {
    to_.Line("template <bool kIsArrayAligned>");
    to_.Open("struct {} {{", name);
    to_.Line("{} a;", operands);
    WriteHeld();
    for (const int v : Numbers(true)) DeclareNumber(v);
    for (const int v : Numbers(false)) DeclareNumber(v);
    to_.Line("__device__ __forceinline__ explicit {}({} arguments) : a(arguments) {{}}", name,
             operands);
    if (given_ >= 0) WriteGiven();
    to_.Open("__device__ __forceinline__ void LoadShared() {{");
    for (const int v : Numbers(true)) SetNumber(v, "true");
    LoadHeld(true);
    to_.Close();
  }
  void WriteLevel(int level) {
    ComputeNumbers(level);
    for (const Pass& pass : passes_of_levels_[static_cast<size_t>(level)]) WritePass(pass);
  }
  void ComputeNumbers(int level) {
    for (const int v : stage_.values) {
      const bool is_number = !IsInput(v) && !IsWide(v) && !ReducesColumns(program_, v);
      if (is_number && LevelOf(v) == level) ComputeNumber(v);
    }
  }

  // The struct that computes a row in two parts (row_split.h). The owner of the row gives the
  // leaves of the value, and runs Fold, which sets the carried value and the numbers. Other ranks
  // set these from its message.
  void WriteSplitStruct() {
    OpenRowStruct("RowSink", "SinkOperands");
    WriteSplitMembers();
    to_.Open("__device__ __forceinline__ void LoadRow(unsigned long long row, bool is_there) {{");
    LoadHeld(false);
    to_.Close();
    to_.Open(
        "__device__ __forceinline__ void LoadNumbers(unsigned long long row, bool is_there) {{");
    for (const int v : Numbers(false)) SetNumber(v, "is_there");
    to_.Close();
    to_.Open(
        "__device__ __forceinline__ void Fold(unsigned long long row, bool is_there, RowMemory& "
        "memory) {{");
    for (int level = 0; level < last_level_; ++level) WriteLevel(level);
    for (size_t n = 0; n < split_->numbers.size(); ++n) {
      to_.Line("number[{}] = {};", n, ValueName(split_->numbers[n]));
    }
    to_.Close();
    to_.Open("__device__ __forceinline__ void Store(unsigned long long row, bool is_there) {{");
    is_tail_ = true;
    for (size_t n = 0; n < split_->numbers.size(); ++n) {
      to_.Line("const float {} = number[{}];", ValueName(split_->numbers[n]), n);
    }
    for (int level = 0; level <= last_level_; ++level) ComputeNumbers(level);
    for (const Pass& pass : passes_of_levels_.back()) WritePass(pass);
    StoreNumbers();
    to_.Close();
    CloseStruct();
  }
  // The carried value and the numbers.
  void WriteSplitMembers() {
    const char* const dtype = DtypeText(value(split_->carried).dtype);
    const std::string leaves =
        fmt::format("{}{}", IsInput(split_->carried) ? "held" : "kept", split_->carried);
    to_.Line("float number[{}];", split_->numbers.size());
    to_.Line("static constexpr int kNumbers = {};", split_->numbers.size());
    to_.Line("__device__ __forceinline__ Leaf<{}> Carried(int j) const {{ return {}[j]; }}", dtype,
             leaves);
    to_.Line(
        "__device__ __forceinline__ void SetCarried(int j, const Leaf<{}>& leaf) {{ {}[j] = leaf; "
        "}}",
        dtype, leaves);
  }

  // Writes how the caller of a sink asks for the number of rows, and gives the leaves of the
  // collective's value.
  void WriteGiven() {
    to_.Line("static_assert(kHolds, \"a value that is given cannot be loaded again\");");
    to_.Line("static constexpr int kLeaves = kLeaves{};", value(given_).columns);
    to_.Line("__device__ __forceinline__ unsigned long long rows() const {{ return {}; }}",
             RowsText(stage_.rows_kind));
    to_.Line(
        "__device__ __forceinline__ void SetLeaf(int j, const Leaf<{}>& leaf) {{ held{}[j] = leaf; "
        "}}",
        DtypeText(value(given_).dtype), given_);
  }

  // The inputs that are one number: of all rows, or of each row.
  std::vector<int> Numbers(bool of_all_rows) const {
    std::vector<int> numbers;
    for (const int v : stage_.values) {
      if (IsInput(v) && !IsWide(v) && IsShared(v) == of_all_rows) numbers.push_back(v);
    }
    return numbers;
  }

  std::set<int> WideInputs() const {
    std::set<int> inputs;
    for (const auto& passes : passes_of_levels_) {
      for (const Pass& pass : passes) {
        for (const int v : pass.values) {
          if (IsInput(v)) inputs.insert(v);
        }
      }
    }
    return inputs;
  }

  uint64_t LeafWords(int index) const {
    return kLeafColumns * sdk::ElementBytes(value(index).dtype) / 4;
  }

  // Finds rounded values that a thread keeps in registers from one pass to the next. A value takes
  // the place of the inputs that only it is computed from; rounding it once a pass would take
  // longer (docs/performance.md).
  void FindKept() {
    std::map<int, int> passes_with;
    for (const auto& passes : passes_of_levels_) {
      for (const Pass& pass : passes) {
        for (const int v : pass.values) ++passes_with[v];
      }
    }
    for (const auto& [v, count] : passes_with) {
      if (count < 2 || !HasBits(v) || !FreesItsRegisters(v)) continue;
      kept_.insert(v);
    }
  }
  // Returns true if the passes after the first one that has the value need so many fewer inputs.
  bool FreesItsRegisters(int index) const {
    std::set<int> without;
    std::set<int> with;
    bool is_first = true;
    for (const auto& passes : passes_of_levels_) {
      for (const Pass& pass : passes) {
        const bool has_it =
            std::find(pass.values.begin(), pass.values.end(), index) != pass.values.end();
        if (has_it && is_first) {
          is_first = false;
          continue;
        }
        if (is_first) continue;
        const std::vector<int> left = WideValuesOf(pass.targets, {index});
        without.insert(pass.values.begin(), pass.values.end());
        with.insert(left.begin(), left.end());
      }
    }
    uint64_t freed_words = 0;
    for (const int v : without) {
      if (IsInput(v) && with.count(v) == 0) freed_words += LeafWords(v);
    }
    return freed_words >= LeafWords(index);
  }

  // The leaves of inputs that a thread keeps between the passes over a row.
  void WriteHeld() {
    std::map<uint64_t, size_t> words;
    for (const int v : WideInputs()) {
      words[value(v).columns] += LeafWords(v);
    }
    std::string sum = "0";
    for (const auto& [columns, of_leaf] : words) {
      const std::string term = fmt::format("{} * LeavesOfThread({})", of_leaf, columns);
      sum = sum == "0" ? term : fmt::format("{} + {}", sum, term);
    }
    to_.Line("static constexpr bool kHolds = {} <= kHeldWordsMax;", sum);
    std::set<uint64_t> widths;
    for (const int v : stage_.values) {
      if (IsWide(v)) widths.insert(value(v).columns);
    }
    for (const uint64_t columns : widths) {
      to_.Line("static constexpr int kLeaves{} = LeavesOfThread({});", columns, columns);
    }
    for (const int v : WideInputs()) {
      to_.Line("Leaf<{}> held{}[kHolds ? kLeaves{} : 1];", DtypeText(value(v).dtype), v,
               value(v).columns);
    }
    for (const int v : kept_) {
      to_.Line("Leaf<{}> kept{}[kLeaves{}];", DtypeText(value(v).dtype), v, value(v).columns);
    }
  }

  // Loads held leaves of one row, before the walk over the rows, or those of each row.
  void LoadHeld(bool of_all_rows) {
    std::map<uint64_t, std::vector<int>> by_columns;
    for (const int v : WideInputs()) {
      if (v != given_ && IsShared(v) == of_all_rows) by_columns[value(v).columns].push_back(v);
    }
    if (by_columns.empty()) return;
    to_.Open("if constexpr (kHolds) {{");
    for (const auto& [columns, inputs] : by_columns) {
      OpenLeafLoop(columns, of_all_rows ? "true" : "is_there");
      for (const int v : inputs) LoadLeaf(v, fmt::format("held{}[j]", v).c_str(), "kIsAligned");
      to_.Close();
    }
    to_.Close();
  }

  // Where nothing stays in registers, fewer leaves at once need fewer of them.
  void OpenLeafLoop(uint64_t columns, const char* is_there, bool needs_all_at_once = true) {
    if (needs_all_at_once) {
      to_.Unroll();
    } else {
      to_.Unroll(fmt::format("kHolds ? kLeaves{} : 2", columns));
    }
    to_.Open("for (int j = 0; j < kLeaves{}; ++j) {{", columns);
    to_.Line("constexpr bool kIsAligned = kIsArrayAligned && {} % kLeafColumns == 0;", columns);
    to_.Line("const unsigned int column = ColumnOf(j);");
    to_.Line("const unsigned int count = ColumnsOf<{}>(j, {});", columns, is_there);
  }

  const char* ReductionText(int index) const {
    return NodeOf(program_, index).kind == COTUNE_NODE_ROW_SUM ? "SumOfRow" : "MaxOfRow";
  }

  // Warps without a leaf pass over the work on it. That pays where there is much of it, as in what
  // quantizes: a residual norm of 5120 columns took 1.1 times as long (docs/performance.md).
  bool SkipsMissingLeaves() const {
    return std::any_of(stage_.outputs.begin(), stage_.outputs.end(), [&](size_t o) {
      return IsWide(OutputValue(o)) && sdk::ElementBytes(value(OutputValue(o)).dtype) == 1;
    });
  }

  void WritePass(const Pass& pass) {
    for (const int v : pass.reductions) {
      to_.Line("{} leaves{}[kLeaves{}];", LaneText(value(v).dtype), v, pass.columns);
    }
    OpenLeafLoop(pass.columns, "is_there", !pass.reductions.empty());
    const bool skips = SkipsMissingLeaves();
    if (skips) {
      for (const int v : pass.reductions) SetLeaf(v, IdentityText(v));
      to_.Open("if (!kHolds || IsThereForAll<{}>(j) || count != 0) {{", pass.columns);
    }
    for (const int v : pass.values) {
      if (!IsInput(v)) continue;
      if (given_ < 0) {
        LoadLeaf(v, fmt::format("if constexpr (!kHolds) held{}[0]", v).c_str(), "kIsAligned");
      }
      to_.Line("const Leaf<{}>& in{} = held{}[kHolds ? j : 0];", DtypeText(value(v).dtype), v, v);
    }
    AddLeaves(pass.values);
    if (!pass.outputs.empty()) WriteOutputs(pass.outputs);
    if (!pass.reductions.empty()) ReduceLeaf(pass);
    if (skips) to_.Close();
    to_.Close();
    written_.insert(pass.values.begin(), pass.values.end());
    for (const int v : pass.reductions) {
      to_.Line("const {} {} = FoldedRow<{}>(leaves{}, memory);", LaneText(value(v).dtype),
               ValueName(v), ReductionText(v), v);
    }
  }

  std::string IdentityText(int index) const {
    return fmt::format("{}::Identity<{}>()", ReductionText(index), LaneText(value(index).dtype));
  }
  void SetLeaf(int index, const std::string& to) { to_.Line("leaves{}[j] = {};", index, to); }

  void ReduceLeaf(const Pass& pass) {
    for (const int v : pass.reductions) to_.Line("{} leaf{} = 0;", LaneText(value(v).dtype), v);
    OpenElementLoop();
    std::vector<int> reduced;
    for (const int v : pass.reductions) reduced.push_back(NodeOf(program_, v).operands[0]);
    ComputeElements(WideValuesOf(reduced, LeafSums()));
    for (const int v : pass.reductions) {
      to_.Line("leaf{0} = InLeaf<{1}, kIsAligned>(leaf{0}, i, count, {2});", v, ReductionText(v),
               ValueName(NodeOf(program_, v).operands[0]));
    }
    to_.Close();
    for (const int v : pass.reductions) {
      SetLeaf(v, fmt::format("count != 0 ? leaf{} : {}", v, IdentityText(v)));
    }
  }

  void StoreNumbers() {
    std::vector<size_t> numbers;
    bool overwrites = false;
    for (const size_t o : stage_.outputs) {
      if (IsWide(OutputValue(o))) continue;
      numbers.push_back(o);
      overwrites = overwrites || program_.output_into[o] >= 0;
    }
    if (overwrites) to_.Line("SyncRow();");
    for (const size_t o : numbers) {
      const int v = OutputValue(o);
      if (IsInput(v)) {
        to_.Line("StoreBitsOfOne<{}>(a.operands[{}], {}, {}, IsFirstThreadOfRow(is_there));",
                 DtypeText(value(v).dtype), OutputOperand(o), IsSingle(v) ? "0" : "row",
                 BitsName(v));
        continue;
      }
      to_.Line("StoreOne<{}>(a.operands[{}], {}, {}, IsFirstThreadOfRow(is_there));",
               DtypeText(value(v).dtype), OutputOperand(o), IsSingle(v) ? "0" : "row",
               ValueName(v));
    }
  }

  const Program program_;
  const PartStage& stage_;
  const size_t number_;
  const bool is_alone_;
  const std::vector<int> levels_;
  TextWriter& to_;
  bool returns_output_ = false;  // instead of storing it
  int given_ = -1;               // the input of which leaves are given
  const RowSplit* split_ = nullptr;
  bool is_tail_ = false;  // what is written now follows from the carried value of the split
  int last_level_ = 0;
  std::vector<std::vector<Pass>> passes_of_levels_;
  std::set<int> kept_;     // between passes, see FindKept
  std::set<int> written_;  // the wide values of the passes that have been written
};

}  // namespace

void WriteStage(const Program& program, const PartStage& stage, size_t number, bool is_alone,
                TextWriter& to) {
  StageText(program, stage, number, is_alone, to).Write();
}

void WriteSource(const Program& program, const PartStage& stage, TextWriter& to) {
  StageText(program, stage, 0, true, to).WriteSource();
}

void WriteSink(const Program& program, const PartStage& stage, TextWriter& to) {
  StageText(program, stage, 0, true, to).WriteSink();
}

void WriteRowSink(const Program& program, const PartStage& stage, TextWriter& to) {
  StageText(program, stage, 0, true, to).WriteRowSink();
}

void WriteSplitRowSink(const Program& program, const PartStage& stage, const RowSplit& split,
                       TextWriter& to) {
  StageText(program, stage, 0, true, to).WriteSplitRowSink(split);
}

void CallStage(const PartStage& stage, size_t number, bool is_alone, TextWriter& to) {
  const char* const blocks = is_alone ? "" : ", blocks";
  const char* const rows = RowsText(stage.rows_kind);
  switch (stage.kind) {
    case StageKind::kElements:
      to.Line("ForElements(Stage{}{{a}}, {} * {}ull, a.is_aligned != 0{});", number, rows,
              stage.columns, blocks);
      break;
    case StageKind::kLeaves:
      to.Line("ForRows<{}>(Stage{}{{a}}, {}, a.is_aligned != 0{});", stage.columns, number, rows,
              blocks);
      break;
    case StageKind::kRows:
      to.Open("if (a.is_aligned != 0) {{");
      to.Line("Stage{}<true>(a, memory{});", number, blocks);
      to.Reopen("}} else {{");
      to.Line("Stage{}<false>(a, memory{});", number, blocks);
      to.Close();
      break;
  }
}

}  // namespace cotune::cuda
