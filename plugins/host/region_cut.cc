#include "plugins/host/region_cut.h"

#include <algorithm>
#include <utility>

#include "plugins/host/bucket_cut.h"

namespace cotune::host {
namespace {

using sdk::Program;
using sdk::ProgramNode;
using sdk::Value;

// Cuts a region of one collective.
class Cutter {
 public:
  explicit Cutter(const Program& region)
      : region_(region), is_before_(region.values.size(), false) {}

  Result<RegionCut> Run() {
    FindCollective();
    MarkBefore();
    COTUNE_RETURN_IF_ERROR(CheckSides());
    const ProgramNode& collective = NodeOf(value_);
    const int operand = collective.operands[0];
    RegionCut cut{.problem = *collective.collective, .members = {{}}};
    RegionMember& member = cut.members[0];
    member.columns = ValueAt(value_).columns;
    member.count = cut.problem.count;
    const bool has_after = std::any_of(region_.outputs.begin(), region_.outputs.end(),
                                       [&](int each) { return each != value_; });
    if (has_after || region_.outputs.size() > 1) {
      COTUNE_TRY(member.after, After());
    }
    if (is_before_[Index(operand)]) {
      COTUNE_TRY(member.before, Before(operand, member.after.has_value()));
      return cut;
    }
    member.operand = operand;
    member.overwrites_operand = Overwrites(operand);
    cut.problem.in_place = member.overwrites_operand && !member.after;
    return cut;
  }

 private:
  static size_t Index(int value) { return static_cast<size_t>(value); }
  const Value& ValueAt(int value) const { return region_.values[Index(value)]; }
  bool IsInput(int value) const { return value < region_.input_count; }
  const ProgramNode& NodeOf(int value) const {
    return region_.nodes[Index(value - region_.input_count)];
  }
  int values() const { return static_cast<int>(region_.values.size()); }
  bool IsOutput(int value) const {
    return std::find(region_.outputs.begin(), region_.outputs.end(), value) !=
           region_.outputs.end();
  }
  bool Overwrites(int input) const {
    return std::find(region_.output_into.begin(), region_.output_into.end(), input) !=
           region_.output_into.end();
  }

  // The shell lets no region through that has none.
  void FindCollective() {
    for (value_ = region_.input_count; !NodeOf(value_).collective; ++value_) {
    }
  }

  // The nodes that the collective's operand is computed from.
  void MarkBefore() {
    is_before_[Index(NodeOf(value_).operands[0])] = !IsInput(NodeOf(value_).operands[0]);
    for (int v = value_ - 1; v >= region_.input_count; --v) {
      if (!is_before_[Index(v)]) continue;
      const ProgramNode& node = NodeOf(v);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[Index(o)] >= region_.input_count) {
          is_before_[Index(node.operands[Index(o)])] = true;
        }
      }
    }
  }

  Result<void> CheckSides() const {
    for (int v = region_.input_count; v < values(); ++v) {
      if (is_before_[Index(v)] && IsOutput(v)) {
        return Fail(COTUNE_UNSUPPORTED, "an output is computed before the collective");
      }
      if (is_before_[Index(v)] || v == value_) continue;
      const ProgramNode& node = NodeOf(v);
      for (int o = 0; o < node.operand_count; ++o) {
        const int operand = node.operands[Index(o)];
        if (operand >= 0 && is_before_[Index(operand)]) {
          return Fail(COTUNE_UNSUPPORTED,
                      "operations after the collective read what operations before it compute");
        }
      }
    }
    return {};
  }

  // Rows are walked by ranges of the collective's value, so that all values of many rows must have
  // as many; if that has one row, it is the many rows of the side. An input of one number stays one
  // row, which is read for all columns, unless the collective's value has one column as well.
  Result<void> FitRows(Program& side, const Value& collective) const {
    const uint32_t kind = collective.rows_kind;
    for (size_t v = 0; v < side.values.size(); ++v) {
      Value& each = side.values[v];
      const bool is_input = v < Index(side.input_count);
      if (is_input && each.rows_kind == COTUNE_ROWS_ONE && each.columns == 1 &&
          collective.columns > 1) {
        continue;
      }
      if (kind == COTUNE_ROWS_ONE && each.rows_kind == COTUNE_ROWS_ONE) {
        each.rows_kind = COTUNE_ROWS_ALL;
      } else if (each.rows_kind != kind && each.rows_kind != COTUNE_ROWS_ONE) {
        return Fail(COTUNE_UNSUPPORTED,
                    "a value around the collective has other rows than the collective's");
      }
    }
    return {};
  }

  // Collects the nodes of a side.
  class SideMaker {
   public:
    explicit SideMaker(const Program& region) : region_(region), at_(region.values.size(), -1) {
      side_.program.rounds_values = region.rounds_values;
      side_.program.digest = region.digest;
      side_.program.text = region.text;
    }
    void AddInput(int value, int input) {
      at_[Index(value)] = static_cast<int>(side_.program.values.size());
      side_.program.values.push_back(region_.values[Index(value)]);
      side_.inputs.push_back(input);
      ++side_.program.input_count;
    }
    // All inputs were added before.
    void AddNode(int value) {
      ProgramNode node = region_.nodes[Index(value - region_.input_count)];
      for (int o = 0; o < node.operand_count; ++o) {
        int32_t& operand = node.operands[Index(o)];
        if (operand >= 0) operand = at_[Index(operand)];
      }
      at_[Index(value)] = static_cast<int>(side_.program.values.size());
      side_.program.values.push_back(region_.values[Index(value)]);
      side_.program.nodes.push_back(node);
    }
    // into: an input of the region, or -1. It is nothing to the side if the side does not read it.
    void AddOutput(int value, int into) {
      side_.program.outputs.push_back(at_[Index(value)]);
      const bool is_read = into >= 0 && at_[Index(into)] >= 0;
      side_.program.output_into.push_back(is_read ? at_[Index(into)] : -1);
    }
    RegionSide& side() { return side_; }

   private:
    const Program& region_;
    std::vector<int> at_;  // the value of the side, by value of the region; -1: none
    RegionSide side_;
  };

  std::vector<bool> ReadBy(bool before) const {
    std::vector<bool> is_read(region_.values.size(), false);
    for (int v = region_.input_count; v < values(); ++v) {
      if (v == value_ || is_before_[Index(v)] != before) continue;
      const ProgramNode& node = NodeOf(v);
      for (int o = 0; o < node.operand_count; ++o) {
        if (node.operands[Index(o)] >= 0) is_read[Index(node.operands[Index(o)])] = true;
      }
    }
    return is_read;
  }

  Result<RegionSide> Before(int operand, bool has_after) const {
    SideMaker maker(region_);
    const std::vector<bool> is_read = ReadBy(true);
    for (int v = 0; v < region_.input_count; ++v) {
      if (is_read[Index(v)]) maker.AddInput(v, v);
    }
    for (int v = region_.input_count; v < value_; ++v) {
      if (is_before_[Index(v)]) maker.AddNode(v);
    }
    // Without operations after it the collective's value may go where these operations read.
    maker.AddOutput(operand, has_after ? -1 : region_.output_into[0]);
    COTUNE_RETURN_IF_ERROR(FitRows(maker.side().program, ValueAt(operand)));
    return std::move(maker.side());
  }

  Result<RegionSide> After() const {
    SideMaker maker(region_);
    const std::vector<bool> is_read = ReadBy(false);
    for (int v = 0; v < region_.input_count; ++v) {
      if (is_read[Index(v)]) maker.AddInput(v, v);
    }
    maker.AddInput(value_, RegionSide::kCollectiveValue);
    for (int v = region_.input_count; v < values(); ++v) {
      if (v != value_ && !is_before_[Index(v)]) maker.AddNode(v);
    }
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      maker.AddOutput(region_.outputs[o], region_.output_into[o]);
      maker.side().outputs.push_back(o);
    }
    COTUNE_RETURN_IF_ERROR(FitRows(maker.side().program, ValueAt(value_)));
    return std::move(maker.side());
  }

  const Program& region_;
  int value_ = 0;                // the collective's
  std::vector<bool> is_before_;  // by value
};

}  // namespace

Result<RegionCut> CutRegion(const Program& region) {
  const auto collectives =
      std::count_if(region.nodes.begin(), region.nodes.end(),
                    [](const ProgramNode& node) { return node.collective.has_value(); });
  return collectives > 1 ? CutBucket(region) : Cutter(region).Run();
}

}  // namespace cotune::host
