// Verifies the parts of a graph and computes the types of its values.
#include "core/problem/program_verifier.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "fmt/format.h"

namespace cotune {
namespace {

bool IsComputedFloat(Dtype dtype) { return KindOf(dtype) == NumberKind::kFloat; }
bool IsComputedInteger(Dtype dtype) { return KindOf(dtype) == NumberKind::kInteger; }
// Values of these are stored, moved and cast, and nothing is computed with them.
bool IsStoredOnly(Dtype dtype) { return KindOf(dtype) == NumberKind::kStored; }

}  // namespace

std::string ShapeText(const ValueType& type) {
  const char* rows = type.rows == Rows::kOne ? "1" : type.rows == Rows::kAll ? "R" : "R/n";
  return fmt::format("{} [{}, {}]", Name(type.dtype), rows, type.columns);
}

namespace {

using Fault = tl::unexpected<GraphFault>;

class Verifier {
 public:
  explicit Verifier(const ProgramParts& parts) : parts_(parts) {}

  tl::expected<VerifiedValues, GraphFault> Run(bool is_part) {
    if (auto fault = CheckInputs()) return Fault(std::move(*fault));
    for (size_t node = 0; node < parts_.nodes.size(); ++node) {
      value_ = static_cast<ValueIndex>(parts_.inputs.size() + node);
      auto fault = std::visit([this](const auto& each) { return Check(each); }, parts_.nodes[node]);
      if (fault) return Fault(std::move(*fault));
    }
    if (auto fault = CheckOutputs()) return Fault(std::move(*fault));
    if (auto fault = CheckUses()) return Fault(std::move(*fault));
    if (!is_part) {
      if (auto fault = CheckCollectives()) return Fault(std::move(*fault));
    }
    return std::move(values_);
  }

 private:
  using MaybeFault = std::optional<GraphFault>;

  MaybeFault At(std::string cause, std::string next_step, int operand = -1) const {
    return GraphFault{value_, operand, -1, std::move(cause), std::move(next_step)};
  }
  MaybeFault NotDefined(int operand) const {
    return At("its operand is not defined before it", "operands are inputs or earlier values",
              operand);
  }
  const ValueType& TypeOf(ValueIndex value) const {
    return values_.types[static_cast<size_t>(value)];
  }
  bool IsDefined(ValueIndex value) const { return value >= 0 && value < value_; }

  MaybeFault CheckInputs() {
    for (size_t i = 0; i < parts_.inputs.size(); ++i) {
      value_ = static_cast<ValueIndex>(i);
      const ValueType& type = parts_.inputs[i].type;
      if (type.columns < 1 || type.columns > kProgramColumnsMax) {
        return At(fmt::format("it has {} columns", type.columns),
                  fmt::format("a value has 1 to {} columns", kProgramColumnsMax));
      }
      if (type.rows == Rows::kShare && parts_.inputs[i].is_replicated) {
        return At("a share of the rows is another one on every rank, and cannot be replicated",
                  "leave replicated out");
      }
      values_.types.push_back(type);
      values_.replicated.push_back(parts_.inputs[i].is_replicated);
      values_.collectives_behind.push_back(0);
    }
    return {};
  }

  void Define(const ValueType& type, bool is_replicated, int collectives_behind) {
    values_.types.push_back(type);
    values_.replicated.push_back(is_replicated);
    values_.collectives_behind.push_back(collectives_behind);
  }

  MaybeFault Check(const CollectiveNode& node) {
    if (!IsDefined(node.operand)) return NotDefined(0);
    ValueType type = TypeOf(node.operand);
    const std::string_view name = Name(node.collective);
    if (Reduces(node.collective) && node.reduction == Reduction::kNone) {
      return At(fmt::format("{} needs a reduction", name),
                "give it sum, product, min, max or average");
    }
    if (!Reduces(node.collective) && node.reduction != Reduction::kNone) {
      return At(fmt::format("{} takes no reduction", name), "leave it out");
    }
    if (node.root < 0 || (node.root > 0 && node.collective != Collective::kBroadcast)) {
      return At(fmt::format("{} cannot have root {}", name, node.root),
                "give a rank to a broadcast, and 0 to other collectives");
    }
    if (Reduces(node.collective) && IsStoredOnly(type.dtype)) {
      return At(
          fmt::format("{} values are moved by collectives, and not reduced", Name(type.dtype)),
          "cast the value in front of the collective", 0);
    }
    const bool has_whole_rows =
        node.collective == Collective::kAllReduce || node.collective == Collective::kBroadcast;
    const bool is_gather = node.collective == Collective::kAllGather;
    const Rows wanted = is_gather ? Rows::kShare : Rows::kAll;
    const bool fits = type.rows == wanted || (has_whole_rows && type.rows == Rows::kOne);
    if (!fits) {
      return At(fmt::format("{} takes a value with {} rows, and this one is {}", name,
                            is_gather        ? "R/n"
                            : has_whole_rows ? "R or 1"
                                             : "R",
                            ShapeText(type)),
                is_gather ? "make a share by reduce_scatter, or declare the input [R/n, ...]"
                          : "gather the rows by all_gather, or declare the input [R, ...]",
                0);
    }
    if (is_gather) type.rows = Rows::kAll;
    if (node.collective == Collective::kReduceScatter) type.rows = Rows::kShare;
    const bool is_replicated = has_whole_rows || is_gather;
    const int behind = values_.collectives_behind[static_cast<size_t>(node.operand)] + 1;
    if (behind > kDependentCollectivesMax) {
      return At(fmt::format("{} collectives depend on each other", behind),
                fmt::format("a program has at most {} in a row", kDependentCollectivesMax));
    }
    Define(type, is_replicated, behind);
    return {};
  }

  // The operand's type, or nothing for a number.
  std::optional<ValueType> TypeOfOperand(const Operand& operand) const {
    if (operand.is_literal()) return std::nullopt;
    return TypeOf(operand.value);
  }

  MaybeFault Check(const ComputeNode& node) {
    const OpTraits& traits = TraitsOf(node.op);
    if (static_cast<int>(node.operands.size()) != traits.operands) {
      return At(fmt::format("{} takes {} operand{}, and {} are given", traits.name, traits.operands,
                            traits.operands == 1 ? "" : "s", node.operands.size()),
                "operands are values or numbers with a comma between them");
    }
    bool has_value = false;
    bool is_replicated = true;
    int behind = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.operands[i];
      if (operand.is_literal()) continue;
      if (!IsDefined(operand.value)) {
        return NotDefined(static_cast<int>(i));
      }
      has_value = true;
      const auto at = static_cast<size_t>(operand.value);
      is_replicated = is_replicated && values_.replicated[at];
      behind = std::max(behind, values_.collectives_behind[at]);
    }
    if (!has_value) return At("none of its operands is a value", "give it one value at least");
    if (MaybeFault fault = CheckConstants(node, traits)) return fault;
    ValueType type;
    if (node.op == Op::kCast) {
      type = TypeOf(node.operands[0].value);
      type.dtype = node.to;
    } else {
      MaybeFault fault = traits.is_compound() || traits.is_row_reduction()
                             ? TypeOfRowwise(node, type)
                             : TypeOfElementwise(node, type);
      if (fault) return fault;
    }
    Define(type, is_replicated, behind);
    return {};
  }

  MaybeFault CheckConstants(const ComputeNode& node, const OpTraits& traits) const {
    if (node.op == Op::kClamp && !(node.constants[0] <= node.constants[1])) {
      return At(fmt::format("low {} is not below high {}", node.constants[0], node.constants[1]),
                "give low= the smaller number");
    }
    if (traits.constants[0] == "eps" &&
        !(node.constants[0] >= 0 && std::isfinite(node.constants[0]))) {
      return At(fmt::format("eps {} is negative, or no finite number", node.constants[0]),
                "give a small positive number, such as eps=1e-6");
    }
    return {};
  }

  // Numbers beside integers are integers that the dtype has.
  MaybeFault CheckNumbers(const ComputeNode& node, Dtype dtype) const {
    if (!IsComputedInteger(dtype)) return {};
    const auto fits = [&](double number) {
      const bool is_byte = dtype == Dtype::kU8;
      const double low = is_byte ? 0 : dtype == Dtype::kI32 ? -0x1p31 : -0x1p63;
      const double end = is_byte ? 256 : dtype == Dtype::kI32 ? 0x1p31 : 0x1p63;
      return number >= low && number < end && number == std::trunc(number);
    };
    const auto fault = [&](double number, int at) {
      return At(fmt::format("{} has no {}", Name(dtype), number),
                "write an integer in its range, or cast the values to a float", at);
    };
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.operands[i];
      const bool is_condition = node.op == Op::kWhere && i == 0;
      if (is_condition || !operand.is_literal() || fits(operand.literal)) continue;
      return fault(operand.literal, static_cast<int>(i));
    }
    for (const double bound : node.constants) {
      if (node.op == Op::kClamp && std::isfinite(bound) && !fits(bound)) return fault(bound, 0);
    }
    return {};
  }

  MaybeFault TypeOfElementwise(const ComputeNode& node, ValueType& type) const {
    const OpTraits& traits = TraitsOf(node.op);
    std::optional<Dtype> dtype;
    type.rows = Rows::kOne;
    type.columns = 1;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const std::optional<ValueType> operand = TypeOfOperand(node.operands[i]);
      if (!operand) continue;
      const int at = static_cast<int>(i);
      if (node.op == Op::kWhere && i == 0) {
        if (operand->dtype != Dtype::kU8) {
          return At(
              fmt::format("the condition of where is u8, and this one is {}", ShapeText(*operand)),
              "make it by less or equal", at);
        }
      } else {
        if (IsStoredOnly(operand->dtype) ||
            (IsComputedInteger(operand->dtype) && !traits.takes_integers())) {
          return At(fmt::format("{} does not compute with {}", traits.name, Name(operand->dtype)),
                    "cast it to a float first", at);
        }
        if (dtype && *dtype != operand->dtype) {
          return At(fmt::format("operands are {} and {}", Name(*dtype), Name(operand->dtype)),
                    "cast one of them", at);
        }
        dtype = operand->dtype;
      }
      if (operand->rows != Rows::kOne) {
        if (type.rows != Rows::kOne && type.rows != operand->rows) {
          return At("operands have R and R/n rows",
                    "bring both to the same rows by all_gather or reduce_scatter", at);
        }
        type.rows = operand->rows;
      }
      if (operand->columns != 1) {
        if (type.columns != 1 && type.columns != operand->columns) {
          return At(fmt::format("operands have {} and {} columns", type.columns, operand->columns),
                    "columns are equal, or 1", at);
        }
        type.columns = operand->columns;
      }
    }
    if (!dtype) {
      return At("its operands, apart from the condition, are numbers only",
                "make one of the two a value");
    }
    if (MaybeFault fault = CheckNumbers(node, *dtype)) return fault;
    const bool is_comparison = node.op == Op::kLess || node.op == Op::kEqual;
    type.dtype = is_comparison ? Dtype::kU8 : *dtype;
    return {};
  }

  // Row reductions and compounds.
  MaybeFault TypeOfRowwise(const ComputeNode& node, ValueType& type) const {
    const OpTraits& traits = TraitsOf(node.op);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      // The scale of a quantization may be one number.
      const bool may_be_literal = node.op == Op::kQuantize && i == 1;
      if (node.operands[i].is_literal() && !may_be_literal) {
        return At(fmt::format("{} takes no numbers", traits.name), "give it a value",
                  static_cast<int>(i));
      }
    }
    const ValueType& x = TypeOf(node.operands[0].value);
    if (!IsComputedFloat(x.dtype)) {
      return At(fmt::format("{} does not compute with {}", traits.name, Name(x.dtype)),
                "cast it to a float first", 0);
    }
    type = x;
    if (traits.is_row_reduction()) {
      type.columns = 1;
      type.dtype = x.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
    }
    if (traits.has_dtype()) {
      if (!IsStoredOnly(node.to)) {
        return At(fmt::format("{} cannot make {}", traits.name, Name(node.to)),
                  "write to=i8, to=f8_e4m3 or to=f8_e5m2");
      }
      if (x.dtype == Dtype::kF64) return At("f64 is not quantized", "cast it to f32 first", 0);
      if (node.op == Op::kQuantize) type.dtype = node.to;
    }
    for (size_t i = 1; i < node.operands.size(); ++i) {
      if (node.operands[i].is_literal()) continue;
      const ValueType& other = TypeOf(node.operands[i].value);
      const int at = static_cast<int>(i);
      if (node.op == Op::kQuantize) {
        const bool has_rows = other.rows == x.rows || other.rows == Rows::kOne;
        if (other.dtype != Dtype::kF32 || other.columns != 1 || !has_rows) {
          return At(fmt::format("the scale is one f32 a row, or one in all, and this is {}",
                                ShapeText(other)),
                    "make it by quantize_scale", at);
        }
        continue;
      }
      // Gains and biases of norms.
      const bool fits_dtype = other.dtype == x.dtype || other.dtype == Dtype::kF32;
      if (other.rows != Rows::kOne || other.columns != x.columns || !fits_dtype) {
        return At(fmt::format("{} of {} takes {} [1, {}] here, and this is {}", traits.name,
                              ShapeText(x), Name(x.dtype), x.columns, ShapeText(other)),
                  "gains and biases have one row, and the dtype of the norm or f32", at);
      }
    }
    return {};
  }

  MaybeFault OutputAt(size_t output, std::string cause, std::string next_step) const {
    return GraphFault{-1, -1, static_cast<int>(output), std::move(cause), std::move(next_step)};
  }

  MaybeFault CheckOutputs() {
    const auto values = static_cast<ValueIndex>(values_.types.size());
    const auto inputs = static_cast<ValueIndex>(parts_.inputs.size());
    value_ = -1;
    if (parts_.outputs.empty()) return At("nothing is returned", "name a value as its output");
    for (size_t i = 0; i < parts_.outputs.size(); ++i) {
      const ProgramOutput& output = parts_.outputs[i];
      if (output.value < 0 || output.value >= values) {
        return OutputAt(i, "it is not defined", "name a value of the program");
      }
      if (output.value < inputs) {
        return OutputAt(i, "it is an input, which the caller has already", "leave it out");
      }
      for (size_t j = 0; j < i; ++j) {
        if (parts_.outputs[j].value == output.value) {
          return OutputAt(i, "it is returned twice", "leave one of the two out");
        }
        if (output.into >= 0 && parts_.outputs[j].into == output.into) {
          return OutputAt(i, "two outputs overwrite one input", "leave into out of one of them");
        }
      }
      if (output.into < 0) continue;
      if (output.into >= inputs) {
        return OutputAt(i, "only an input can be overwritten", "name an input behind into");
      }
      if (TypeOf(output.into) != TypeOf(output.value)) {
        return OutputAt(
            i,
            fmt::format("it is {}, and the input that it overwrites is {}",
                        ShapeText(TypeOf(output.value)), ShapeText(TypeOf(output.into))),
            "give both one type, or leave into out");
      }
      if (MaybeFault fault = CheckReadersOf(i)) return fault;
    }
    return {};
  }

  // No node behind an output that overwrites an input may read the input.
  MaybeFault CheckReadersOf(size_t output) {
    const ProgramOutput& each = parts_.outputs[output];
    const auto inputs = static_cast<ValueIndex>(parts_.inputs.size());
    for (auto node = static_cast<size_t>(each.value - inputs) + 1; node < parts_.nodes.size();
         ++node) {
      const std::vector<ValueIndex> read = ValuesReadBy(parts_.nodes[node]);
      if (std::find(read.begin(), read.end(), each.into) == read.end()) continue;
      value_ = inputs + static_cast<ValueIndex>(node);
      return At("it reads an input that was overwritten before",
                "read the new value, or return it without into");
    }
    return {};
  }

  MaybeFault CheckUses() {
    std::vector<bool> used(values_.types.size());
    for (const ProgramNode& node : parts_.nodes) {
      for (const ValueIndex value : ValuesReadBy(node)) used[static_cast<size_t>(value)] = true;
    }
    for (const ProgramOutput& output : parts_.outputs) {
      used[static_cast<size_t>(output.value)] = true;
      // An input that is overwritten alone is the memory of an output.
      if (output.into >= 0) used[static_cast<size_t>(output.into)] = true;
    }
    for (size_t value = 0; value < used.size(); ++value) {
      if (used[value]) continue;
      value_ = static_cast<ValueIndex>(value);
      return At("nothing uses it", "return it, or leave it out");
    }
    return {};
  }

  MaybeFault CheckCollectives() {
    int collectives = 0;
    for (const ProgramNode& node : parts_.nodes) {
      if (std::holds_alternative<CollectiveNode>(node)) ++collectives;
    }
    value_ = -1;
    if (collectives == 0) {
      return At("there is no collective", "a program has one at least; add one");
    }
    const auto too_many = [&](const char* what, size_t have, size_t most) {
      return At(fmt::format("there are {} {}", have, what),
                fmt::format("a program has at most {}; split it", most));
    };
    if (collectives > kIndependentCollectivesMax) {
      return too_many("collectives", static_cast<size_t>(collectives), kIndependentCollectivesMax);
    }
    if (parts_.nodes.size() > kProgramNodesMax) {
      return too_many("nodes", parts_.nodes.size(), kProgramNodesMax);
    }
    if (parts_.inputs.size() > kProgramInputsMax) {
      return too_many("inputs", parts_.inputs.size(), kProgramInputsMax);
    }
    if (parts_.outputs.size() > kProgramOutputsMax) {
      return too_many("outputs", parts_.outputs.size(), kProgramOutputsMax);
    }
    return {};
  }

  const ProgramParts& parts_;
  ValueIndex value_ = 0;  // that is looked at
  VerifiedValues values_;
};

}  // namespace

tl::expected<VerifiedValues, GraphFault> VerifyValues(const ProgramParts& parts, bool is_part) {
  return Verifier(parts).Run(is_part);
}

}  // namespace cotune
