#include "plugins/cuda/parts/row_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "plugins/cuda/parts/value_text.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Program;
using sdk::Result;
using sdk::Value;

class Splitter {
 public:
  Splitter(const Program& part, const PartStage& stage, std::span<const int> inputs)
      : program_(sdk::WithoutCopies(part)), stage_(stage), inputs_(inputs) {}

  Result<RowSplit> Split() {
    COTUNE_RETURN_IF_ERROR(FindNumbers());
    COTUNE_RETURN_IF_ERROR(CheckHead());
    COTUNE_RETURN_IF_ERROR(CheckNumbersOverwritten());
    std::string reason;
    for (const int v : CarriedCandidates()) {
      const int input = RowInputOfTail(v);
      if (input < 0) return RowSplit{v, numbers_};
      reason = fmt::format(
          "operations after the last reduction read input {}, which has several columns in each "
          "row",
          inputs_[static_cast<size_t>(input)]);
    }
    return Fail(COTUNE_UNSUPPORTED, std::move(reason));
  }

 private:
  const Value& value(int index) const { return program_.values[static_cast<size_t>(index)]; }
  bool IsInput(int index) const { return index < program_.input_count; }
  bool IsWide(int index) const { return value(index).columns > 1; }

  Result<void> FindNumbers() {
    for (const int v : stage_.values) {
      if (ReducesColumns(program_, v)) numbers_.push_back(v);
      if (IsWide(v) && value(v).columns != value(0).columns) {
        return Fail(COTUNE_UNSUPPORTED,
                    fmt::format("a value has {} columns, and the collective's {}", value(v).columns,
                                value(0).columns));
      }
    }
    if (numbers_.empty()) return Fail(COTUNE_UNSUPPORTED, "no operation reduces rows");
    if (numbers_.size() > kSplitNumbersMax) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("a row has {} reductions; {} fit into a pack",
                                                  numbers_.size(), kSplitNumbersMax));
    }
    for (const int v : numbers_) {
      if (std::string_view(LaneText(value(v).dtype)) == "float") continue;
      return Fail(COTUNE_UNSUPPORTED, "a reduction is not computed in 32 bits");
    }
    return {};
  }

  // All that targets are computed from, with themselves, up to the values in `known`.
  std::set<int> SourcesOf(std::set<int> targets, const std::set<int>& known) const {
    for (auto at = targets.rbegin(); at != targets.rend(); ++at) {
      if (IsInput(*at)) break;
      if (known.contains(*at)) continue;
      const sdk::ProgramNode& node = NodeOf(program_, *at);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[static_cast<size_t>(o)] >= 0) {
          targets.insert(node.operands[static_cast<size_t>(o)]);
        }
      }
    }
    return targets;
  }

  // Every rank uses what the owner has computed, so that it has to be the same on all of them.
  Result<void> CheckHead() {
    head_ = SourcesOf({numbers_.begin(), numbers_.end()}, {});
    for (const int v : head_) {
      if (v == 0 || !IsInput(v) || value(v).is_replicated) continue;
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("operations up to the last reduction read input {}, which is not "
                              "replicated",
                              inputs_[static_cast<size_t>(v)]));
    }
    return {};
  }

  // A thread that receives a row meets the others of the row nowhere, so that it may store a number
  // before another one has loaded what stood there.
  Result<void> CheckNumbersOverwritten() const {
    for (const size_t o : stage_.outputs) {
      if (IsWide(program_.outputs[o]) || program_.output_into[o] < 0) continue;
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("output {} overwrites an input of one number a row", o));
    }
    return {};
  }

  // The collective's value, and values that follow from it before all reductions. Readers of
  // such a value have to see it as it travels: rounded to its dtype.
  std::vector<int> CarriedCandidates() const {
    const std::vector<int> levels = LevelsOf(program_);
    std::vector<int> candidates{0};
    for (const int v : head_) {
      const bool is_exact =
          sdk::IsRoundedForReaders(program_, v) || value(v).dtype == sdk::ValueDtype::kF32;
      if (IsInput(v) || !IsWide(v) || levels[static_cast<size_t>(v)] > 0 || !is_exact) continue;
      if (value(v).dtype == value(0).dtype && value(v).rows_kind == value(0).rows_kind) {
        candidates.push_back(v);
      }
    }
    return candidates;
  }

  // An input with several columns in each row that the tail reads, if the value is carried; -1.
  int RowInputOfTail(int carried) const {
    std::set<int> known(numbers_.begin(), numbers_.end());
    known.insert(carried);
    std::set<int> outputs;
    for (const size_t o : stage_.outputs) outputs.insert(program_.outputs[o]);
    for (const int v : SourcesOf(std::move(outputs), known)) {
      if (v == carried || !IsInput(v) || !IsWide(v)) continue;
      if (v == 0 || value(v).rows_kind != COTUNE_ROWS_ONE) return v;
    }
    return -1;
  }

  const Program program_;
  const PartStage& stage_;
  const std::span<const int> inputs_;
  std::vector<int> numbers_;
  std::set<int> head_;  // all that the reductions are computed from, with themselves
};

}  // namespace

Result<RowSplit> SplitOf(const Program& part, const PartStage& stage, std::span<const int> inputs) {
  if (stage.kind != StageKind::kRows) return Fail(COTUNE_UNSUPPORTED, "no operation reduces rows");
  if (stage.rows_kind == COTUNE_ROWS_ONE) {
    return Fail(COTUNE_UNSUPPORTED, "a value of one row has one owner");
  }
  return Splitter(part, stage, inputs).Split();
}

}  // namespace cotune::cuda
