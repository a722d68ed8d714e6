#include "plugins/sdk/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace cotune::sdk {
namespace {

constexpr uint32_t kMustUnderstandFlags = 0xffff0000u;
constexpr uint64_t kColumnsMax = uint64_t{1} << 32;
constexpr uint64_t kBytesEnd = uint64_t{1} << 62;

std::optional<ValueDtype> DtypeFromAbi(cotune_dtype_t dtype) {
  if (const auto type = ElementTypeFromAbi(dtype)) return static_cast<ValueDtype>(*type);
  if (dtype.lanes != 1 || dtype.bits != 8) return std::nullopt;
  if (dtype.code == COTUNE_DTYPE_INT) return ValueDtype::kI8;
  if (dtype.code == COTUNE_DTYPE_FLOAT8_E4M3FN) return ValueDtype::kF8E4M3;
  if (dtype.code == COTUNE_DTYPE_FLOAT8_E5M2) return ValueDtype::kF8E5M2;
  return std::nullopt;
}

bool IsStoredOnly(ValueDtype dtype) {
  return dtype == ValueDtype::kI8 || dtype == ValueDtype::kF8E4M3 || dtype == ValueDtype::kF8E5M2;
}

template <class Entry>
const Entry& At(const Entry* first, uint32_t stride, uint32_t index) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(first);
  return *reinterpret_cast<const Entry*>(bytes + static_cast<size_t>(index) * stride);
}

class Checker {
 public:
  Checker(const cotune_program_t& given, const ProblemLimits& limits)
      : given_(given), limits_(limits) {}

  Result<Program> Run() {
    COTUNE_RETURN_IF_ERROR(CheckHeader());
    for (uint32_t i = 0; i < given_.input_count + given_.node_count; ++i) {
      COTUNE_RETURN_IF_ERROR(ReadValue(i));
    }
    program_.input_count = static_cast<int>(given_.input_count);
    for (uint32_t i = 0; i < given_.node_count; ++i) {
      value_ = static_cast<int32_t>(given_.input_count + i);
      COTUNE_RETURN_IF_ERROR(ReadNode(At(given_.nodes, given_.node_stride, i)));
    }
    COTUNE_RETURN_IF_ERROR(ReadOutputs());
    program_.rounds_values = (given_.flags & COTUNE_PROGRAM_ROUNDS_VALUES) != 0;
    program_.is_symmetric = (given_.flags & COTUNE_PROGRAM_SYMMETRIC) != 0;
    program_.digest = given_.digest;
    if (given_.text != nullptr) program_.text = given_.text;
    return std::move(program_);
  }

 private:
  tl::unexpected<Failure> Invalid(const std::string& text) const {
    return Fail(COTUNE_INVALID_ARGUMENT, text);
  }
  tl::unexpected<Failure> InvalidNode(const std::string& text) const {
    return Invalid(fmt::format("value {}: {}", value_, text));
  }

  Result<void> CheckHeader() const {
    if (!COTUNE_HAS_FIELD(cotune_program_t, &given_, text)) {
      return Invalid(fmt::format("program.struct_size {} is too small", given_.struct_size));
    }
    uint32_t known = COTUNE_PROGRAM_ROUNDS_VALUES;
    if (limits_.takes_symmetric) known |= COTUNE_PROGRAM_SYMMETRIC;
    if ((given_.flags & kMustUnderstandFlags & ~known) != 0) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("program flags {:#x}: some are not known here", given_.flags));
    }
    if (given_.memory_kind != limits_.memory_kind) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("memory kind {} is not this backend's", given_.memory_kind));
    }
    if (given_.world_size < 1) {
      return Invalid(fmt::format("world_size {} is below 1", given_.world_size));
    }
    const bool has_arrays = given_.values != nullptr && given_.nodes != nullptr &&
                            given_.outputs != nullptr && given_.output_into != nullptr;
    const bool has_strides = given_.value_stride >= sizeof(cotune_value_t) &&
                             given_.value_stride % alignof(cotune_value_t) == 0 &&
                             given_.node_stride >= sizeof(cotune_node_t) &&
                             given_.node_stride % alignof(cotune_node_t) == 0;
    if (!has_arrays || !has_strides) {
      return Invalid("an array of the program is missing, or its stride does not fit");
    }
    const bool is_small = given_.node_count >= 1 && given_.node_count <= COTUNE_PROGRAM_NODES_MAX &&
                          given_.input_count <= COTUNE_PROGRAM_INPUTS_MAX &&
                          given_.output_count >= 1 &&
                          given_.output_count <= COTUNE_PROGRAM_OUTPUTS_MAX;
    if (!is_small) {
      return Invalid(fmt::format("{} inputs, {} nodes and {} outputs", given_.input_count,
                                 given_.node_count, given_.output_count));
    }
    return {};
  }

  Result<void> ReadValue(uint32_t index) {
    const cotune_value_t& given = At(given_.values, given_.value_stride, index);
    value_ = static_cast<int32_t>(index);
    if (given.struct_size < sizeof(cotune_value_t)) return InvalidNode("struct_size is too small");
    if ((given.flags & kMustUnderstandFlags) != 0) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("value flags {:#x}: some are not known here", given.flags));
    }
    const auto dtype = DtypeFromAbi(given.dtype);
    if (!dtype) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("dtype code {} bits {} is not known here",
                                                  given.dtype.code, given.dtype.bits));
    }
    if (given.rows_kind < COTUNE_ROWS_ONE || given.rows_kind > COTUNE_ROWS_SHARE) {
      return InvalidNode(fmt::format("rows_kind {}", given.rows_kind));
    }
    // Values of one kind have the same rows, as parts go through them together.
    uint64_t& rows = rows_of_kind_[given.rows_kind];
    const bool is_first = rows == kNoRows;
    if (is_first) rows = given.rows_kind == COTUNE_ROWS_ONE ? 1 : given.rows;
    const bool fits_kind = given.rows == rows;
    const bool fits_bytes = given.columns >= 1 && given.columns < kColumnsMax &&
                            given.rows < kBytesEnd / (given.columns * ElementBytes(*dtype));
    if (!fits_kind || !fits_bytes) {
      return InvalidNode(fmt::format("{} rows of {} columns", given.rows, given.columns));
    }
    program_.values.push_back({*dtype, given.rows_kind, given.rows, given.columns,
                               (given.flags & COTUNE_VALUE_REPLICATED) != 0});
    return {};
  }

  Result<void> ReadNode(const cotune_node_t& given) {
    if (given.struct_size < sizeof(cotune_node_t)) return InvalidNode("struct_size is too small");
    const int operands = OperandsOf(given.kind);
    if (operands == 0) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("node kind {} is not known here", given.kind));
    }
    if (given.operand_count != static_cast<uint32_t>(operands)) {
      return InvalidNode(
          fmt::format("{} operands, and its kind has {}", given.operand_count, operands));
    }
    ProgramNode node;
    node.kind = given.kind;
    node.operand_count = operands;
    bool has_value = false;
    for (int i = 0; i < operands; ++i) {
      const int32_t operand = given.operands[i];
      if (operand < COTUNE_OPERAND_LITERAL || operand >= value_) {
        return InvalidNode(fmt::format("operand {} is not defined before", operand));
      }
      has_value = has_value || operand >= 0;
      node.operands[i] = operand;
      node.literals[i] = given.literals[i];
    }
    if (!has_value) return InvalidNode("no operand is a value");
    node.constants = {given.constants[0], given.constants[1]};
    auto fits =
        given.kind == COTUNE_NODE_COLLECTIVE ? ReadCollective(given, node) : CheckTypes(node);
    if (!fits) return fits;
    program_.nodes.push_back(node);
    return {};
  }

  const Value& Of(int32_t value) const { return program_.values[static_cast<size_t>(value)]; }

  Result<void> ReadCollective(const cotune_node_t& given, ProgramNode& node) const {
    if (given.operands[0] < 0) return InvalidNode("a collective of a number");
    const Value& operand = Of(given.operands[0]);
    const Value& result = Of(value_);
    const bool has_blocks =
        given.collective != COTUNE_ALL_REDUCE && given.collective != COTUNE_BROADCAST;
    const auto ranks = static_cast<uint64_t>(given_.world_size);
    const Value& whole = given.collective == COTUNE_ALL_GATHER ? result : operand;
    cotune_problem_t problem{};
    problem.struct_size = sizeof(problem);
    problem.collective = given.collective;
    problem.reduction = given.reduction;
    problem.memory_kind = given_.memory_kind;
    problem.dtype = IsStoredOnly(operand.dtype)
                        ? cotune_dtype_t{COTUNE_DTYPE_UINT, 8, 1}
                        : ElementTypeToAbi(static_cast<ElementType>(operand.dtype));
    problem.count = whole.rows * whole.columns / (has_blocks ? ranks : 1);
    problem.bytes = whole.bytes();
    problem.world_size = given_.world_size;
    problem.ranks_per_node = given_.ranks_per_node;
    problem.root = given.root;
    problem.topology_digest = given_.topology_digest;
    if (has_blocks && whole.rows % ranks != 0) {
      return InvalidNode(fmt::format("{} rows have no {} equal shares", whole.rows, ranks));
    }
    COTUNE_TRY(auto checked, CheckProblem(problem, limits_));
    const uint64_t operand_rows =
        given.collective == COTUNE_ALL_GATHER ? whole.rows / ranks : whole.rows;
    const uint64_t result_rows =
        given.collective == COTUNE_REDUCE_SCATTER ? whole.rows / ranks : whole.rows;
    if (operand.dtype != result.dtype || operand.columns != result.columns ||
        operand.rows != operand_rows || result.rows != result_rows) {
      return InvalidNode("the collective's operand and value do not fit together");
    }
    node.collective = checked;
    return {};
  }

  Result<void> CheckTypes(const ProgramNode& node) const {
    const Value& result = Of(value_);
    const Value* many_rows = nullptr;  // an operand that is not of one row
    uint64_t columns = 1;
    std::optional<ValueDtype> dtype;
    for (int i = 0; i < node.operand_count; ++i) {
      if (node.operands[i] < 0) continue;
      const Value& operand = Of(node.operands[i]);
      const bool is_condition = node.kind == COTUNE_NODE_WHERE && i == 0;
      const bool fits_dtype =
          is_condition ? operand.dtype == ValueDtype::kU8 : !dtype || *dtype == operand.dtype;
      if (!fits_dtype) return InvalidNode("its operands have several dtypes");
      if (!is_condition) dtype = operand.dtype;
      if (node.kind != COTUNE_NODE_CAST && IsStoredOnly(operand.dtype)) {
        return InvalidNode("nothing is computed with a dtype of 8 bits but u8");
      }
      if (operand.columns != 1 && columns != 1 && columns != operand.columns) {
        return InvalidNode("its operands have other shapes");
      }
      columns = std::max(columns, operand.columns);
      if (operand.rows_kind == COTUNE_ROWS_ONE) continue;
      if (many_rows != nullptr && !HaveSameRows(*many_rows, operand)) {
        return InvalidNode("its operands have other shapes");
      }
      many_rows = &operand;
    }
    if (!dtype) return InvalidNode("no operand but the condition is a value");
    if (IsRowReduction(node.kind)) {
      if (!IsFloat(*dtype)) return InvalidNode("a row reduction of integers");
      columns = 1;
    }
    const bool is_comparison = node.kind == COTUNE_NODE_LESS || node.kind == COTUNE_NODE_EQUAL;
    const bool fits_dtype =
        node.kind == COTUNE_NODE_CAST || result.dtype == (is_comparison ? ValueDtype::kU8 : *dtype);
    const bool fits_rows = many_rows == nullptr ? result.rows_kind == COTUNE_ROWS_ONE
                                                : HaveSameRows(*many_rows, result);
    if (!fits_dtype || !fits_rows || result.columns != columns) {
      return InvalidNode("its type does not follow from its operands");
    }
    return {};
  }

  static bool HaveSameRows(const Value& left, const Value& right) {
    return left.rows_kind == right.rows_kind && left.rows == right.rows;
  }

  Result<void> ReadOutputs() {
    for (uint32_t i = 0; i < given_.output_count; ++i) {
      const int32_t output = given_.outputs[i];
      const int32_t into = given_.output_into[i];
      const auto inputs = static_cast<int32_t>(given_.input_count);
      if (output < inputs || output >= inputs + static_cast<int32_t>(given_.node_count)) {
        return Invalid(fmt::format("output {} is value {}, which no node defines", i, output));
      }
      const bool is_equal = into >= 0 && into < inputs && Of(into).dtype == Of(output).dtype &&
                            HaveSameRows(Of(into), Of(output)) &&
                            Of(into).columns == Of(output).columns;
      const std::vector<int32_t>& known = program_.output_into;
      const bool is_taken = std::find(known.begin(), known.end(), into) != known.end();
      if (into != -1 && (!is_equal || is_taken)) {
        return Invalid(fmt::format("output {} cannot overwrite value {}", i, into));
      }
      program_.outputs.push_back(output);
      program_.output_into.push_back(into);
    }
    return {};
  }

  const cotune_program_t& given_;
  const ProblemLimits& limits_;
  static constexpr uint64_t kNoRows = UINT64_MAX;  // no value has so many
  std::array<uint64_t, COTUNE_ROWS_SHARE + 1> rows_of_kind_ = {kNoRows, kNoRows, kNoRows, kNoRows};
  Program program_;
  int32_t value_ = 0;  // that is looked at
};

struct Extent {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// A value without elements lies nowhere.
bool Overlap(const Extent& left, const Extent& right) {
  return left.begin < right.end && right.begin < left.end && left.begin < left.end &&
         right.begin < right.end;
}

}  // namespace

size_t ElementBytes(ValueDtype dtype) {
  return IsStoredOnly(dtype) ? 1 : ElementBytes(static_cast<ElementType>(dtype));
}

bool Program::is_part() const {
  return std::none_of(nodes.begin(), nodes.end(),
                      [](const ProgramNode& node) { return node.collective.has_value(); });
}

bool IsRoundedForReaders(const Program& program, int value) {
  const ValueDtype dtype = program.values[static_cast<size_t>(value)].dtype;
  if (value < program.input_count || !IsNarrowFloat(dtype)) return false;
  const auto reads = [&](const ProgramNode& node) {
    const auto end = node.operands.begin() + node.operand_count;
    return std::find(node.operands.begin(), end, value) != end;
  };
  const auto& nodes = program.nodes;
  if (std::none_of(nodes.begin(), nodes.end(), reads)) return false;
  const auto& outputs = program.outputs;
  if (program.rounds_values || IsFloat8(dtype) ||
      std::find(outputs.begin(), outputs.end(), value) != outputs.end()) {
    return true;
  }
  const bool is_of_collective =
      nodes[static_cast<size_t>(value - program.input_count)].collective.has_value();
  return is_of_collective || std::any_of(nodes.begin(), nodes.end(), [&](const ProgramNode& node) {
           return node.collective.has_value() && reads(node);
         });
}

bool IsCopyOfInput(const Program& program, int value) {
  if (value < program.input_count) return false;
  const ProgramNode& node = program.nodes[static_cast<size_t>(value - program.input_count)];
  const int operand = node.operands[0];
  return node.kind == COTUNE_NODE_CAST && operand >= 0 && operand < program.input_count &&
         program.values[static_cast<size_t>(operand)].dtype ==
             program.values[static_cast<size_t>(value)].dtype;
}

Program WithoutCopies(Program program) {
  std::vector<int32_t> read_as(program.values.size());
  for (size_t v = 0; v < read_as.size(); ++v) {
    read_as[v] = static_cast<int32_t>(v);
    if (v < static_cast<size_t>(program.input_count)) continue;
    ProgramNode& node = program.nodes[v - static_cast<size_t>(program.input_count)];
    for (int o = 0; o < node.operand_count; ++o) {
      int32_t& operand = node.operands[static_cast<size_t>(o)];
      if (operand >= 0) operand = read_as[static_cast<size_t>(operand)];
    }
    if (IsCopyOfInput(program, read_as[v])) read_as[v] = node.operands[0];
  }
  for (int32_t& output : program.outputs) output = read_as[static_cast<size_t>(output)];
  return program;
}

Result<Program> CheckProgram(const cotune_program_t& program, const ProblemLimits& limits) {
  return Checker(program, limits).Run();
}

namespace {

// Checks all but the addresses of the operands.
Result<void> CheckLaunch(const Program& program, const cotune_program_launch_t& launch) {
  if (!COTUNE_HAS_FIELD(cotune_program_launch_t, &launch, deadline_ns) ||
      (program.input_count > 0 && launch.inputs == nullptr) || launch.outputs == nullptr) {
    return Fail(COTUNE_INVALID_ARGUMENT, "the launch has no operands");
  }
  if ((launch.flags & kMustUnderstandFlags) != 0) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("launch flags {:#x}: some are not known here", launch.flags));
  }
  return {};
}

Result<void> CheckAddresses(const Program& program, const cotune_program_launch_t& launch) {
  const auto extent = [](const void* address, const Value& value) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return Extent{begin, begin + value.bytes()};
  };
  const auto check = [&](const void* address, const Value& value, const char* what,
                         int index) -> Result<void> {
    if (value.bytes() == 0) return {};
    if (address == nullptr) {
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("{} {} is null", what, index));
    }
    if (reinterpret_cast<uintptr_t>(address) % ElementBytes(value.dtype) != 0) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("{} {} is not aligned to its elements", what, index));
    }
    return {};
  };
  for (int i = 0; i < program.input_count; ++i) {
    auto fits = check(launch.inputs[i], program.values[static_cast<size_t>(i)], "input", i);
    if (!fits) return fits;
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Value& value = program.values[static_cast<size_t>(program.outputs[i])];
    auto fits = check(launch.outputs[i], value, "output", static_cast<int>(i));
    if (!fits) return fits;
    const Extent own = extent(launch.outputs[i], value);
    for (int j = 0; j < program.input_count; ++j) {
      const Extent other = extent(launch.inputs[j], program.values[static_cast<size_t>(j)]);
      if (!Overlap(own, other)) continue;
      if (program.output_into[i] == j && own.begin == other.begin) continue;
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("output {} overlaps input {}", i, j));
    }
    for (size_t j = 0; j < i; ++j) {
      const Extent other =
          extent(launch.outputs[j], program.values[static_cast<size_t>(program.outputs[j])]);
      if (Overlap(own, other)) {
        return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("outputs {} and {} overlap", j, i));
      }
    }
  }
  return {};
}

}  // namespace

Result<void> CheckOperands(const Program& program, const cotune_program_launch_t& launch) {
  COTUNE_RETURN_IF_ERROR(CheckLaunch(program, launch));
  return CheckAddresses(program, launch);
}

Result<void> LaunchedOperands::Check(const Program& program,
                                     const cotune_program_launch_t& launch) {
  COTUNE_RETURN_IF_ERROR(CheckLaunch(program, launch));
  const auto inputs = static_cast<size_t>(program.input_count);
  const size_t outputs = program.outputs.size();
  if (addresses_.size() == inputs + outputs &&
      std::equal(launch.inputs, launch.inputs + inputs, addresses_.begin()) &&
      std::equal(launch.outputs, launch.outputs + outputs,
                 addresses_.begin() + static_cast<std::ptrdiff_t>(inputs))) {
    return {};
  }
  addresses_.clear();
  COTUNE_RETURN_IF_ERROR(CheckAddresses(program, launch));
  addresses_.reserve(inputs + outputs);
  addresses_.assign(launch.inputs, launch.inputs + inputs);
  addresses_.insert(addresses_.end(), launch.outputs, launch.outputs + outputs);
  return {};
}

}  // namespace cotune::sdk
