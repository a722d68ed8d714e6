#include "plugins/cuda/parts/row_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cuda/parts/leaf_text.h"
#include "plugins/cuda/parts/value_text.h"

namespace cotune::cuda {
namespace {

// The text of a stage that reduces rows, in passes over the columns.
class RowText : LeafText {
 public:
  RowText(const sdk::Program& program, const PartStage& stage, TextWriter& to)
      : LeafText(program, stage, to) {}

  // A struct that computes one row after the other, and a function that walks over all of them.
  void WriteRows(size_t number, bool is_alone) {
    PlanPasses();
    const std::string rows = fmt::format("Rows{}", number);
    WriteRowStruct(rows, "const Arguments&");
    to_.Line("template <bool kIsArrayAligned>");
    to_.Open("__device__ __forceinline__ void Stage{}(const Arguments& a, RowMemory& memory{}) {{",
             number, is_alone ? "" : ", const StageBlocks& blocks");
    to_.Line("ForEachRow({}<kIsArrayAligned>(a), RowWalk({}{}), memory);", rows,
             RowsText(stage_.rows_kind), is_alone ? "" : ", blocks");
    to_.Close();
    to_.Blank();
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
  // One pass over the columns. It computes the numbers of a level, or the outputs.
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

  // Finds rounded values that a thread keeps in registers from one pass to the next. A value takes
  // the place of the inputs that only it is computed from; rounding it once a pass would take
  // longer (docs/performance/gpu_parts.md).
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

  // If nothing stays in registers, fewer leaves at once need fewer of them.
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

  // Warps without a leaf pass over the work on it. That pays if there is much of it, as in stages
  // that quantize: a residual norm of 5120 columns took 1.1 times as long
  // (docs/performance/gpu_parts.md).
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

  int last_level_ = 0;
  std::vector<std::vector<Pass>> passes_of_levels_;
};

}  // namespace

void WriteRows(const sdk::Program& program, const PartStage& stage, size_t number, bool is_alone,
               TextWriter& to) {
  RowText(program, stage, to).WriteRows(number, is_alone);
}

void WriteRowSink(const sdk::Program& program, const PartStage& stage, TextWriter& to) {
  RowText(program, stage, to).WriteRowSink();
}

void WriteSplitRowSink(const sdk::Program& program, const PartStage& stage, const RowSplit& split,
                       TextWriter& to) {
  RowText(program, stage, to).WriteSplitRowSink(split);
}

}  // namespace cotune::cuda
