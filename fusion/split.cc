#include "fusion/split.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/recipe/input_map.h"
#include "core/recipe/make_recipe.h"
#include "fmt/format.h"
#include "fusion/node_links.h"
#include "fusion/roundings.h"

namespace cotune {
namespace {

const CollectiveNode* CollectiveAt(const ProgramGraph& graph, size_t node) {
  return std::get_if<CollectiveNode>(&graph.nodes()[node]);
}

bool IsAllReduceOfRows(const ProgramGraph& graph, size_t node) {
  const CollectiveNode* const collective = CollectiveAt(graph, node);
  return collective != nullptr && collective->collective == Collective::kAllReduce &&
         graph.type(collective->operand).rows == Rows::kAll;
}

// The choices that a form leaves open; its graph follows from them.
struct Wish {
  NodeSet all_reduces;    // to be split
  NodeSet on_whole_rows;  // local operations that run on R rows
};

// The values of a program in the form.
class Shares {
 public:
  // An all_reduce that no operation on R/n rows reads is not split.
  Shares(const ProgramGraph& graph, const NodeLinks& links, const Wish& wish)
      : graph_(graph), links_(links), wish_(wish) {
    while (true) {
      FindPossible();
      FindNeeded();
      const NodeSet before = wish_.all_reduces;
      for (const size_t node : graph_.collectives()) {
        if (!share_needed_[Index(graph_.value_of_node(node))]) wish_.all_reduces.reset(node);
      }
      if (wish_.all_reduces == before) return;
    }
  }

  // Returns true if the rank has its R/n rows of the value.
  bool has_share(ValueIndex value) const {
    return share_needed_[Index(value)] || follows_split_[Index(value)];
  }
  // Returns true if the rank has the value as in the program.
  bool has_whole(ValueIndex value) const { return whole_needed_[Index(value)]; }
  // Returns true if it is gathered where it has both.
  bool is_gathered(ValueIndex value) const {
    return follows_split_[Index(value)] && has_whole(value);
  }
  const NodeSet& all_reduces() const { return wish_.all_reduces; }

  // Why no operation that reads the all_reduce runs on R/n rows.
  std::string WhyNothingFollows(size_t all_reduce) const {
    for (const size_t reader : links_.readers(graph_.value_of_node(all_reduce))) {
      if (CollectiveAt(graph_, reader) != nullptr) continue;
      for (const ValueIndex operand : links_.operands(reader)) {
        if (!graph_.is_replicated(operand)) {
          return fmt::format("operand %{} of %{} is not replicated", operand,
                             graph_.value_of_node(reader));
        }
        const bool is_all_reduce =
            !graph_.is_input(operand) && IsAllReduceOfRows(graph_, NodeOf(graph_, operand));
        if (!is_all_reduce && !CanBeShare(operand)) {
          return fmt::format(
              "operand %{} of %{} is neither a replicated input nor computed from one", operand,
              graph_.value_of_node(reader));
        }
      }
    }
    return "no operation that could run on R/n rows follows an all_reduce";
  }

 private:
  static size_t Index(ValueIndex value) { return static_cast<size_t>(value); }

  // A value of one row is the same in each share.
  bool CanBeShare(ValueIndex value) const {
    if (graph_.type(value).rows == Rows::kOne) return graph_.is_replicated(value);
    return possible_[Index(value)];
  }

  void FindPossible() {
    possible_.assign(graph_.value_count(), false);
    follows_split_.assign(graph_.value_count(), false);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const ProgramInput& input = graph_.inputs()[i];
      possible_[i] = input.type.rows == Rows::kAll && input.is_replicated;
    }
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      const ValueIndex value = graph_.value_of_node(node);
      if (graph_.type(value).rows != Rows::kAll) continue;
      if (CollectiveAt(graph_, node) != nullptr) {
        possible_[Index(value)] = follows_split_[Index(value)] = wish_.all_reduces[node];
        continue;
      }
      const std::vector<ValueIndex>& operands = links_.operands(node);
      possible_[Index(value)] =
          !wish_.on_whole_rows[node] &&
          std::all_of(operands.begin(), operands.end(),
                      [&](ValueIndex operand) { return CanBeShare(operand); });
      follows_split_[Index(value)] =
          possible_[Index(value)] &&
          std::any_of(operands.begin(), operands.end(),
                      [&](ValueIndex operand) { return follows_split_[Index(operand)]; });
    }
  }

  // An operation that follows a split all_reduce runs on shares; another one where its readers do.
  void FindNeeded() {
    share_needed_.assign(graph_.value_count(), false);
    whole_needed_.assign(graph_.value_count(), false);
    for (const ProgramOutput& output : graph_.outputs()) whole_needed_[Index(output.value)] = true;
    for (size_t node = graph_.nodes().size(); node-- > 0;) {
      const ValueIndex value = graph_.value_of_node(node);
      const bool is_local = CollectiveAt(graph_, node) == nullptr;
      const bool on_shares = is_local && has_share(value);
      const bool on_whole_rows = !is_local || (has_whole(value) && !follows_split_[Index(value)]);
      for (const ValueIndex operand : links_.operands(node)) {
        const bool has_rows = graph_.type(operand).rows == Rows::kAll;
        if (on_shares && has_rows) share_needed_[Index(operand)] = true;
        if (on_whole_rows || (on_shares && !has_rows)) whole_needed_[Index(operand)] = true;
      }
    }
  }

  const ProgramGraph& graph_;
  const NodeLinks& links_;
  Wish wish_;
  std::vector<bool> possible_;       // by value: it has R rows, and can be computed on shares
  std::vector<bool> follows_split_;  // by value: and depends on a split all_reduce
  std::vector<bool> share_needed_;   // by value: an operation on shares reads it
  std::vector<bool> whole_needed_;   // by value: it is an output, or read as in the program
};

// Writes the graph of the form.
class SplitWriter {
 public:
  SplitWriter(const ProgramGraph& graph, const Shares& shares)
      : graph_(graph),
        shares_(shares),
        parts_{graph.name(), {}, {}, {}},
        map_{{}, graph.inputs().size()},
        whole_(graph.value_count(), -1),
        share_(graph.value_count(), -1) {}

  // The values of the form that a value of the program is; -1: it has none.
  ValueIndex whole(ValueIndex value) const { return whole_[static_cast<size_t>(value)]; }
  ValueIndex share(ValueIndex value) const { return share_[static_cast<size_t>(value)]; }

  Result<Form> Write() {
    AddInputs();
    for (size_t node = 0; node < graph_.nodes().size(); ++node) Add(node);
    for (const ProgramOutput& output : graph_.outputs()) {
      const ValueIndex into = output.into < 0 ? -1 : whole(output.into);
      parts_.outputs.push_back({Whole(output.value), into});
    }
    auto made = ProgramGraph::Verify(std::move(parts_));
    if (!made) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("the form would be no program: {}", made.error().cause));
    }
    Form form = FormWithoutRegions(kSplit, *made);
    form.inputs = std::move(map_);
    return form;
  }

 private:
  void AddInput(ValueIndex input, bool is_share) {
    ProgramInput added = graph_.inputs()[static_cast<size_t>(input)];
    if (is_share) {
      added.type.rows = Rows::kShare;
      added.is_replicated = false;
    }
    auto& values = is_share ? share_ : whole_;
    values[static_cast<size_t>(input)] = static_cast<ValueIndex>(parts_.inputs.size());
    parts_.inputs.push_back(std::move(added));
    map_.inputs.push_back({input, is_share});
  }
  // Inputs that are read as in the program, or are overwritten; then the shares.
  void AddInputs() {
    const auto count = static_cast<ValueIndex>(graph_.inputs().size());
    for (ValueIndex input = 0; input < count; ++input) {
      const bool is_overwritten =
          std::any_of(graph_.outputs().begin(), graph_.outputs().end(),
                      [&](const ProgramOutput& output) { return output.into == input; });
      if (is_overwritten || shares_.has_whole(input)) AddInput(input, false);
    }
    for (ValueIndex input = 0; input < count; ++input) {
      if (shares_.has_share(input)) AddInput(input, true);
    }
  }

  ValueIndex Append(ProgramNode node) {
    parts_.nodes.push_back(std::move(node));
    return static_cast<ValueIndex>(parts_.inputs.size() + parts_.nodes.size() - 1);
  }
  // The value as in the program. It is gathered before its first reader.
  ValueIndex Whole(ValueIndex value) {
    ValueIndex& made = whole_[static_cast<size_t>(value)];
    if (made < 0) {
      made = Append(CollectiveNode{.collective = Collective::kAllGather, .operand = share(value)});
    }
    return made;
  }
  ValueIndex AppendLocal(size_t node, bool on_shares) {
    auto copy = std::get<ComputeNode>(graph_.nodes()[node]);
    for (Operand& operand : copy.operands) {
      if (operand.is_literal()) continue;
      const bool is_share = on_shares && graph_.type(operand.value).rows == Rows::kAll;
      operand.value = is_share ? share(operand.value) : Whole(operand.value);
    }
    return Append(std::move(copy));
  }
  void Add(size_t node) {
    const ValueIndex value = graph_.value_of_node(node);
    const auto index = static_cast<size_t>(value);
    if (const CollectiveNode* const collective = CollectiveAt(graph_, node)) {
      CollectiveNode copy = *collective;
      copy.operand = Whole(copy.operand);
      const bool is_split = shares_.all_reduces()[node];
      if (is_split) copy.collective = Collective::kReduceScatter;
      (is_split ? share_ : whole_)[index] = Append(copy);
      return;
    }
    if (shares_.has_share(value)) share_[index] = AppendLocal(node, true);
    if (shares_.has_whole(value) && !shares_.is_gathered(value)) {
      whole_[index] = AppendLocal(node, false);
    }
  }

  const ProgramGraph& graph_;
  const Shares& shares_;
  ProgramParts parts_;
  InputMap map_;
  std::vector<ValueIndex> whole_;  // by value of the program
  std::vector<ValueIndex> share_;  // by value of the program
};

// The values of the program and of the form without regions must be rounded alike.
struct ChangedValue {
  ValueIndex value = 0;  // a value of the program
  std::string reason;
};
std::optional<ChangedValue> FirstChanged(const Roundings& program, const Recipe& recipe,
                                         const SplitWriter& writer, size_t values) {
  const std::vector<bool> rounded = RoundedBy(recipe);
  for (size_t i = 0; i < values; ++i) {
    const auto value = static_cast<ValueIndex>(i);
    if (program.IsExact(value)) continue;
    for (const ValueIndex made : {writer.share(value), writer.whole(value)}) {
      if (made < 0 || rounded[static_cast<size_t>(made)] == program.IsRoundedInProgram(value)) {
        continue;
      }
      const char* const reason =
          program.IsRoundedInProgram(value)
              ? "is rounded in the program, and would not be in the form"
              : "would be rounded between two steps, and is not in the program";
      return ChangedValue{value, fmt::format("%{} {}", value, reason)};
    }
  }
  return std::nullopt;
}

// The form of a wish, or what to wish for instead.
class SplitSearch {
 public:
  explicit SplitSearch(const ProgramGraph& graph)
      : graph_(graph), links_(graph), unfused_(UnfusedRecipe(graph)), roundings_(unfused_) {
    for (const size_t node : graph.collectives()) {
      if (IsAllReduceOfRows(graph, node)) wish_.all_reduces.set(node);
    }
  }

  // Every round splits fewer all_reduces, or has fewer operations on shares.
  Result<Form> Find() {
    if (wish_.all_reduces.none()) {
      return Fail(ErrorCode::kUnsupported, "no all_reduce has R rows");
    }
    while (true) {
      const Shares shares(graph_, links_, wish_);
      if (reason_.empty() && shares.all_reduces().none())
        reason_ = shares.WhyNothingFollows(First());
      wish_.all_reduces = shares.all_reduces();
      if (wish_.all_reduces.none()) return Fail(ErrorCode::kUnsupported, reason_);
      SplitWriter writer(graph_, shares);
      Result<Form> form = writer.Write();
      if (form && IsRight(*form, writer, shares)) return form;
      if (!form) SplitFewer(form.error().what);
    }
  }

 private:
  size_t First() const {
    size_t node = 0;
    while (!wish_.all_reduces[node]) ++node;
    return node;
  }
  void SplitFewer(std::string reason) {
    reason_ = std::move(reason);
    size_t last = wish_.all_reduces.size() - 1;
    while (!wish_.all_reduces[last]) --last;
    wish_.all_reduces.reset(last);
  }
  // Returns true if the form gives the bits of the program; else the next round is another one.
  bool IsRight(const Form& form, const SplitWriter& writer, const Shares& shares) {
    Result<Recipe> recipe = MakeRecipe(form.graph, form.inputs, {});
    if (!recipe) {
      SplitFewer(std::move(recipe.error().what));
      return false;
    }
    auto changed = FirstChanged(roundings_, *recipe, writer, graph_.value_count());
    if (!changed) return true;
    const ValueIndex value = changed->value;
    const bool is_local =
        !graph_.is_input(value) && CollectiveAt(graph_, NodeOf(graph_, value)) == nullptr;
    if (is_local && shares.has_share(value)) {
      reason_ = std::move(changed->reason);
      wish_.on_whole_rows.set(NodeOf(graph_, value));
    } else {
      SplitFewer(std::move(changed->reason));
    }
    return false;
  }

  const ProgramGraph& graph_;
  const NodeLinks links_;
  const Recipe unfused_;
  const Roundings roundings_;
  Wish wish_;
  std::string reason_;  // why the last form was not right
};

}  // namespace

Result<Form> SplitForm(const ProgramGraph& graph) { return SplitSearch(graph).Find(); }

}  // namespace cotune
