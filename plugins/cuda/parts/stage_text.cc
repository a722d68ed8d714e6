#include "plugins/cuda/parts/stage_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/parts/leaf_text.h"
#include "plugins/cuda/parts/row_text.h"
#include "plugins/cuda/parts/value_text.h"

namespace cotune::cuda {
namespace {

// The text of a stage without row reductions.
class StageText : LeafText {
 public:
  StageText(const sdk::Program& program, const PartStage& stage, TextWriter& to)
      : LeafText(program, stage, to) {}

  // The stages of a run, in place of one.
  void SetRun(const StageRun& run) { steps_ = &run.operands; }

  void WriteElements(size_t number) {
    to_.Open("struct Stage{} {{", number);
    to_.Line("const Arguments& a;");
    if (steps_ != nullptr) to_.Line("const unsigned int number;  // of the stage in its run");
    to_.Line("template <bool kIsAligned>");
    to_.Open("__device__ __forceinline__ void At({}) const {{", kLeafParameters);
    LoadElements();
    WriteAllOutputs();
    to_.Close();
    CloseStruct();
  }

  void WriteSource() {
    returns_output_ = true;
    OpenLeafStruct("Source");
    to_.Line("template <bool kIsAligned>");
    to_.Open("__device__ __forceinline__ Leaf<{}> At({}) const {{",
             DtypeText(value(OutputValue(0)).dtype), kLeafParameters);
    LoadElements();
    WriteAllOutputs();
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
    WriteAllOutputs();
    to_.Close();
    CloseStruct();
  }

 private:
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
  void WriteAllOutputs() {
    ComputeWholeLeaves(WideValuesOfOutputs());
    WriteOutputs(stage_.outputs);
  }
  std::vector<int> WideValuesOfOutputs() const {
    std::vector<int> targets;
    for (const size_t o : stage_.outputs) targets.push_back(OutputValue(o));
    return WideValuesOf(targets);
  }
  std::vector<int> WideInputsOfOutputs() const {
    std::vector<int> inputs;
    for (const int v : WideValuesOfOutputs()) {
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
};

// The columns of stage `number` of a run. (A table would lie in memory.)
std::string ColumnsText(const std::vector<uint64_t>& columns) {
  std::string text;
  for (size_t s = 0; s + 1 < columns.size(); ++s) {
    if (columns[s] == columns[s + 1]) continue;
    text += fmt::format("number < {} ? {}ull : ", s + 1, columns[s]);
  }
  text += fmt::format("{}ull", columns.back());
  return text;
}

}  // namespace

void WriteStage(const sdk::Program& program, const PartStage& stage, size_t number, bool is_alone,
                TextWriter& to) {
  if (stage.kind == StageKind::kRows) return WriteRows(program, stage, number, is_alone, to);
  StageText(program, stage, to).WriteElements(number);
}

void WriteStages(const StageRun& run, TextWriter& to) {
  StageText text(run.program, run.stage, to);
  text.SetRun(run);
  text.WriteElements(run.first);
}

void WriteSource(const sdk::Program& program, const PartStage& stage, TextWriter& to) {
  StageText(program, stage, to).WriteSource();
}

void WriteSink(const sdk::Program& program, const PartStage& stage, TextWriter& to) {
  StageText(program, stage, to).WriteSink();
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

void CallStages(const StageRun& run, TextWriter& to) {
  to.Line("const unsigned long long columns = {};", ColumnsText(run.columns));
  to.Line("ForElements(Stage{}{{a, number}}, {} * columns, a.is_aligned != 0, blocks);", run.first,
          RowsText(run.stage.rows_kind));
}

}  // namespace cotune::cuda
