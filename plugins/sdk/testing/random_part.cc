#include "plugins/sdk/testing/random_part.h"

#include <algorithm>
#include <iterator>

namespace cotune::sdk {
namespace {

bool IsStoredOnly(ValueDtype dtype) {
  return dtype == ValueDtype::kI8 || dtype == ValueDtype::kF8E4M3 || dtype == ValueDtype::kF8E5M2;
}

}  // namespace

bool IsFunction(uint32_t kind) { return kind >= COTUNE_NODE_GELU_ERF && kind <= COTUNE_NODE_LOG; }

uint64_t KindOperands(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_WHERE:
      return 3;
    case COTUNE_NODE_ADD:
    case COTUNE_NODE_SUB:
    case COTUNE_NODE_MUL:
    case COTUNE_NODE_DIV:
    case COTUNE_NODE_MIN:
    case COTUNE_NODE_MAX:
    case COTUNE_NODE_LESS:
    case COTUNE_NODE_EQUAL:
      return 2;
    default:
      return 1;
  }
}

bool TakesIntegers(uint32_t kind) {
  return kind <= COTUNE_NODE_RELU ? kind != COTUNE_NODE_DIV : kind >= COTUNE_NODE_CLAMP;
}

PartOperand InputOf(PartBuilder& part, ValueDtype dtype, uint64_t columns, int shape) {
  switch (shape) {
    case 1:
      return part.Input(dtype, columns, COTUNE_ROWS_ONE);
    case 2:
      return part.Input(dtype, 1);
    case 3:
      return part.Input(dtype, 1, COTUNE_ROWS_ONE);
    default:
      return part.Input(dtype, columns);
  }
}

Program RandomPart::Make() {
  constexpr uint64_t kColumns[] = {1, 2, 7, 8, 33, 1023, 1024, 1025, 2100};
  columns_ = kColumns[Below(std::size(kColumns))];
  const uint64_t rows = Below(4);
  PartBuilder part(rows, rows == 0 ? 0 : rows - 1);
  part.program.rounds_values = Below(2) == 0;
  AddInputs(part);
  const uint64_t nodes = 1 + Below(14);
  for (uint64_t n = 0; n < nodes; ++n) AddNode(part);
  AddOutputs(part);
  return part.program;
}

void RandomPart::AddInputs(PartBuilder& part) {
  const uint64_t inputs = 1 + Below(5);
  for (uint64_t i = 0; i < inputs; ++i) {
    const ValueDtype dtype = kPartDtypes[Below(std::size(kPartDtypes))];
    const int shape = i == 0 ? 0 : static_cast<int>(Below(4));
    const uint64_t columns = options_.has_other_columns && i > 0 && Below(4) == 0 ? 24 : columns_;
    if (options_.has_shares && i > 0 && Below(4) == 0) {
      part.Input(dtype, shape >= 2 ? 1 : columns, COTUNE_ROWS_SHARE);
    } else {
      InputOf(part, dtype, columns, shape);
    }
  }
}

int RandomPart::AnyValue(const PartBuilder& part, const Fit& fit) {
  std::vector<int> fitting;
  const auto& values = part.program.values;
  for (size_t v = 0; v < values.size(); ++v) {
    const bool fits_rows = fit.rows_kind == 0 || values[v].rows_kind == COTUNE_ROWS_ONE ||
                           values[v].rows_kind == fit.rows_kind;
    const bool fits_columns =
        fit.columns == 0 || values[v].columns == 1 || values[v].columns == fit.columns;
    if (fits_rows && fits_columns) fitting.push_back(static_cast<int>(v));
  }
  return fitting[Below(fitting.size())];
}

int RandomPart::ValueOf(PartBuilder& part, ValueDtype dtype, const Fit& fit) {
  for (int tries = 0; tries < 6; ++tries) {
    const int value = AnyValue(part, fit);
    if (part.program.values[static_cast<size_t>(value)].dtype == dtype) return value;
  }
  return part.Cast(AnyValue(part, fit), dtype);
}

int RandomPart::FirstOperand(PartBuilder& part, Fit& fit) {
  int first = AnyValue(part, {});
  const Value& value = part.program.values[static_cast<size_t>(first)];
  fit.rows_kind = value.rows_kind;
  if (fit.rows_kind == COTUNE_ROWS_ONE) fit.rows_kind = COTUNE_ROWS_ALL;
  fit.columns = value.columns == 1 ? columns_ : value.columns;
  if (options_.is_checked && IsStoredOnly(value.dtype)) first = part.Cast(first, ValueDtype::kF32);
  return first;
}

uint32_t RandomPart::KindFor(ValueDtype dtype) {
  if (Below(8) == 0) return COTUNE_NODE_WHERE;
  uint32_t kind = 0;
  do {
    kind = 1 + static_cast<uint32_t>(Below(kLastElementwise - 1));
  } while ((IsFunction(kind) && !options_.has_functions) || kind == COTUNE_NODE_CAST ||
           (!IsFloat(dtype) && !TakesIntegers(kind)));
  return kind;
}

void RandomPart::AddNode(PartBuilder& part) {
  Fit fit;
  const int first = FirstOperand(part, fit);
  const ValueDtype dtype = part.program.values[static_cast<size_t>(first)].dtype;
  if (IsFloat(dtype) && Below(6) == 0) {
    const bool is_wide = dtype == ValueDtype::kF32 || dtype == ValueDtype::kF64;
    const int row = options_.is_checked && !is_wide ? part.Cast(first, ValueDtype::kF32) : first;
    part.Node(Below(2) == 0 ? COTUNE_NODE_ROW_SUM : COTUNE_NODE_ROW_MAX, {row});
    return;
  }
  if (Below(6) == 0) {
    part.Cast(first, kPartDtypes[Below(std::size(kPartDtypes))]);
    return;
  }
  const uint32_t kind = KindFor(dtype);
  std::vector<PartOperand> operands;
  if (kind == COTUNE_NODE_WHERE) operands.push_back(ValueOf(part, ValueDtype::kU8, fit));
  operands.push_back(first);
  // Numbers that the dtype has.
  const double least = IsFloat(dtype) ? -2.5 : dtype == ValueDtype::kU8 ? 0 : -2;
  while (operands.size() < KindOperands(kind)) {
    operands.push_back(Below(4) == 0 ? PartOperand::Literal(static_cast<double>(Below(9)) + least)
                                     : ValueOf(part, dtype, fit));
  }
  part.Node(kind, operands, dtype == ValueDtype::kU8 ? 4 : -4, 100);
}

int RandomPart::OutputValue(PartBuilder& part, int value) {
  const bool is_input = value < part.program.input_count;
  if (!options_.is_checked || !is_input) return value;
  return part.Cast(value, part.program.values[static_cast<size_t>(value)].dtype);
}

void RandomPart::AddOutputs(PartBuilder& part) {
  const int last = static_cast<int>(part.program.values.size()) - 1;
  part.Output(last, InputLike(part, last));
  const uint64_t more = Below(4);
  for (uint64_t o = 0; o < more; ++o) {
    const int value = OutputValue(part, AnyValue(part, {}));
    part.Output(value, InputLike(part, value));
  }
}

int RandomPart::InputLike(const PartBuilder& part, int value) {
  if (Below(2) == 0) return -1;
  const auto& into = part.program.output_into;
  const Value& type = part.program.values[static_cast<size_t>(value)];
  for (int i = 0; i < part.program.input_count; ++i) {
    const Value& input = part.program.values[static_cast<size_t>(i)];
    if (input.dtype == type.dtype && input.columns == type.columns &&
        input.rows_kind == type.rows_kind && std::find(into.begin(), into.end(), i) == into.end()) {
      return i;
    }
  }
  return -1;
}

}  // namespace cotune::sdk
