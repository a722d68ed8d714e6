#include "core/problem/program_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "core/problem/bounded.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/program_evaluator.h"

namespace cotune {
namespace {

// Rows of a period: within the first three, so that calls of a few rows have them.
constexpr uint64_t kZeroRow = 1;
constexpr uint64_t kSmallRow = 2;
constexpr double kSmall = 0x1p-10;

// bf16 holds sums of up to 256, thus 64 ranks with 3 each. In larger groups, as many ranks have
// other numbers than 0 at one element.
constexpr uint64_t kSummedRanksMax = 64;
constexpr uint64_t kLargestSummed = 3;

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b * 0xC2B2AE3D27D4EB4Full + c * 0x165667B19E3779F9ull +
               d * 0xD6E8FEB86659FD93ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

// How an input enters the collectives that reduce.
enum class Role {
  kMoved,       // not at all, or only minima and maxima
  kSummed,      // it is the operand of a sum
  kTerm,        // local operations compute the operand of a sum from it
  kMultiplied,  // it, or what is computed from it, is the operand of a product
  kLaterTerm    // kTerm in later calls, because it is written into an input
};

// The inputs that each value is computed from, as bits; `inputs` are those of the inputs.
std::vector<uint32_t> SourcesOf(const ProgramGraph& graph, std::vector<uint32_t> inputs) {
  std::vector<uint32_t> sources = std::move(inputs);
  for (const ProgramNode& node : graph.nodes()) {
    uint32_t mask = 0;
    if (const auto* collective = std::get_if<CollectiveNode>(&node)) {
      mask = sources[static_cast<size_t>(collective->operand)];
    } else {
      for (const Operand& operand : std::get<ComputeNode>(node).operands) {
        if (!operand.is_literal()) mask |= sources[static_cast<size_t>(operand.value)];
      }
    }
    sources.push_back(mask);
  }
  return sources;
}

// In one call.
std::vector<uint32_t> SourcesOf(const ProgramGraph& graph) {
  std::vector<uint32_t> inputs;
  for (size_t input = 0; input < graph.inputs().size(); ++input) inputs.push_back(1u << input);
  return SourcesOf(graph, std::move(inputs));
}

// In calls one after the other, which read what earlier ones wrote into an input.
std::vector<uint32_t> SourcesOfCalls(const ProgramGraph& graph) {
  std::vector<uint32_t> sources = SourcesOf(graph);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    std::vector<uint32_t> inputs(sources.begin(),
                                 sources.begin() + static_cast<ptrdiff_t>(graph.inputs().size()));
    for (const ProgramOutput& output : graph.outputs()) {
      if (output.into < 0) continue;
      uint32_t& mask = inputs[static_cast<size_t>(output.into)];
      const uint32_t joined = mask | sources[static_cast<size_t>(output.value)];
      has_changed = has_changed || joined != mask;
      mask = joined;
    }
    sources = SourcesOf(graph, std::move(inputs));
  }
  return sources;
}

// `sources` are those of each value.
Role RoleOf(const ProgramGraph& graph, size_t input, const std::vector<uint32_t>& sources) {
  Role role = Role::kMoved;
  for (const size_t index : graph.collectives()) {
    const auto& node = std::get<CollectiveNode>(graph.nodes()[index]);
    const auto operand = static_cast<size_t>(node.operand);
    if ((sources[operand] >> input & 1) == 0) continue;
    if (node.reduction == Reduction::kProduct) return Role::kMultiplied;
    if (node.reduction != Reduction::kSum && node.reduction != Reduction::kAverage) continue;
    if (operand != input) {
      role = Role::kTerm;
    } else if (role == Role::kMoved) {
      role = Role::kSummed;
    }
  }
  return role;
}

Role RoleOf(const ProgramGraph& graph, size_t input, const ProgramDataSet& data) {
  const Role role = RoleOf(graph, input, SourcesOf(graph));
  if (role != Role::kMoved || !data.cancels_over_ranks) return role;
  const Role later = RoleOf(graph, input, SourcesOfCalls(graph));
  return later == Role::kTerm ? Role::kLaterTerm : later;
}

uint32_t WidestColumns(const ProgramGraph& graph) {
  uint32_t columns = 1;
  for (size_t value = 0; value < graph.value_count(); ++value) {
    columns = std::max(columns, graph.type(static_cast<ValueIndex>(value)).columns);
  }
  return columns;
}

uint64_t RowsOf(Rows kind, uint64_t rows, int world_size) {
  if (kind == Rows::kOne) return 1;
  return kind == Rows::kAll ? rows : rows / static_cast<uint64_t>(world_size);
}

bool IsEight(Dtype dtype) { return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2; }

// The numbers of one input on one rank.
class InputNumbers {
 public:
  InputNumbers(const ProgramGraph& graph, size_t input, int rank, const ProgramDataSet& data)
      : type_(graph.inputs()[input].type),
        role_(RoleOf(graph, input, data)),
        is_replicated_(graph.inputs()[input].is_replicated),
        is_weight_(IsWeight(graph, input, role_)),
        input_(input),
        rank_(is_replicated_ ? 0 : static_cast<uint64_t>(rank)),
        ranks_(static_cast<uint64_t>(data.world_size)),
        salt_(data.salt),
        cancels_(data.cancels_over_ranks) {}

  // The number at a row of the period.
  double At(uint64_t row, uint64_t column) const {
    if (is_weight_) return Weight(type_.rows == Rows::kOne ? column : row);
    double value = 0;
    switch (role_) {
      case Role::kMoved:
        value = Moved(row, column);
        break;
      case Role::kSummed:
      case Role::kTerm:
      case Role::kLaterTerm:
        value = Summed(row, column);
        break;
      case Role::kMultiplied:
        return Factor(row, column);
    }
    return value * OfRow(row) + 0.0;  // a negative zero becomes a positive one
  }

 private:
  // One row or one column that is repeated over wider values.
  static bool IsWeight(const ProgramGraph& graph, size_t input, Role role) {
    const ValueType& type = graph.inputs()[input].type;
    const bool may_be_weight = role == Role::kMoved || role == Role::kTerm;
    if (!IsFloat(type.dtype) || !may_be_weight) return false;
    if (type.columns == 1) return WidestColumns(graph) > 1;
    return type.rows == Rows::kOne && graph.has_rows();
  }

  uint64_t MixOf(uint64_t row, uint64_t column, uint64_t rank) const {
    return Mix(row, column, rank * 64 + input_, salt_);
  }

  double OfRow(uint64_t row) const {
    if (type_.rows == Rows::kOne || type_.columns == 1 || !IsFloat(type_.dtype)) return 1;
    if (row == kZeroRow) return 0;
    return row == kSmallRow && !IsEight(type_.dtype) ? kSmall : 1;
  }

  double Weight(uint64_t place) const {
    const uint64_t shift = Mix(input_, cancels_ ? 0 : rank_, 0, salt_);
    if (role_ == Role::kTerm) return 1 + static_cast<double>((place + shift) % 3);
    const uint64_t odd = 2 * ((place + shift) % 7) + 1;
    const int exponent = static_cast<int>(Mix(place, input_, 1, salt_) % 3) - 3;
    return std::ldexp(static_cast<double>(odd), exponent);
  }

  double Moved(uint64_t row, uint64_t column) const {
    const uint64_t mixed = MixOf(row, column, rank_);
    if (type_.dtype == Dtype::kU8) return mixed >> 20 & 1 ? 0 : static_cast<double>(mixed % 251);
    const double centred = static_cast<double>(mixed % 127) - 63;
    return IsFloat(type_.dtype) ? centred / 8 : centred;
  }

  double Summed(uint64_t row, uint64_t column) const {
    if (cancels_) return Opposite(row, column);
    const uint64_t place = MixOf(row, column, ranks_);
    const bool is_zero = ranks_ > kSummedRanksMax && (rank_ + place) % ranks_ >= kSummedRanksMax;
    return is_zero ? 0 : Small(MixOf(row, column, rank_));
  }

  // Numbers of rank 2 k and rank 2 k + 1 are opposite; a rank that is alone has zeros. So have the
  // ranks beyond those whose sums are exact in any order: a sum that is not quite 0 would grow.
  double Opposite(uint64_t row, uint64_t column) const {
    const uint64_t partner = rank_ ^ 1;
    if (is_replicated_ || type_.dtype == Dtype::kU8 || partner >= ranks_) return 0;
    if (rank_ >= kSummedRanksMax) return 0;
    const double value = Small(MixOf(row, column, rank_ / 2));
    return rank_ % 2 == 0 ? value : -value;
  }

  double Small(uint64_t mixed) const {
    // Terms are multiplied by weights of up to 3.
    const uint64_t largest = role_ == Role::kSummed ? kLargestSummed : 1;
    if (type_.dtype == Dtype::kU8) return static_cast<double>(mixed % (largest + 1));
    return static_cast<double>(mixed % (2 * largest + 1)) - static_cast<double>(largest);
  }

  // 2 on up to three ranks, else 1.
  double Factor(uint64_t row, uint64_t column) const {
    if (cancels_ || is_replicated_) return 1;
    const uint64_t mixed = MixOf(row, column, ranks_);
    for (const int shift : {0, 16, 32}) {
      if ((mixed >> shift & 0xFFFF) % ranks_ == rank_) return 2;
    }
    return 1;
  }

  ValueType type_;
  Role role_;
  bool is_replicated_;
  bool is_weight_;
  uint64_t input_;
  uint64_t rank_;
  uint64_t ranks_;
  uint64_t salt_;
  bool cancels_;
};

}  // namespace

uint64_t PeriodRows(const ProgramGraph& graph, uint64_t rows, int world_size) {
  const auto is_prime = [](uint64_t number) {
    for (uint64_t divisor = 2; divisor * divisor <= number; ++divisor) {
      if (number % divisor == 0) return false;
    }
    return true;
  };
  const uint64_t share = rows / static_cast<uint64_t>(world_size);
  const auto divides = [](uint64_t prime, uint64_t count) {
    return count != 0 && count % prime == 0;
  };
  uint64_t period = WidestColumns(graph) < 128 ? 1009 : 13;
  while (!is_prime(period) || divides(period, rows) || divides(period, share)) ++period;
  return period;
}

std::vector<std::byte> InputPeriod(const ProgramGraph& graph, size_t input, int rank,
                                   const ProgramDataSet& data) {
  COTUNE_CHECK(input < graph.inputs().size(), "the program has this input");
  const ValueType& type = graph.inputs()[input].type;
  const uint64_t period = PeriodRows(graph, data.rows, data.world_size);
  const uint64_t rows = RowsOf(type.rows, data.rows, data.world_size);
  const uint64_t first = type.rows == Rows::kShare ? static_cast<uint64_t>(rank) * rows : 0;
  const InputNumbers numbers(graph, input, rank, data);
  EvaluatedValue value = Zeros(type, std::min(rows, period));
  uint64_t element = 0;
  for (uint64_t row = 0; row < value.rows; ++row) {
    for (uint64_t column = 0; column < type.columns; ++column, ++element) {
      const double number = numbers.At((first + row) % period, column);
      if (IsFloat(type.dtype)) {
        value.floats[element].value = number;
      } else {
        value.integers[element] = static_cast<int64_t>(number);
      }
    }
  }
  return Encode(value);
}

std::vector<std::byte> RepeatedRows(std::span<const std::byte> period, uint64_t row_bytes,
                                    uint64_t rows) {
  std::vector<std::byte> bytes(rows * row_bytes);
  for (size_t done = 0; done < bytes.size();) {
    const size_t run = std::min(period.size(), bytes.size() - done);
    COTUNE_CHECK(run > 0, "a value with rows has a period with rows");
    std::memcpy(bytes.data() + done, period.data(), run);
    done += run;
  }
  return bytes;
}

uint64_t EvaluatedRows(const ProgramGraph& graph, uint64_t rows, int world_size) {
  const uint64_t period = PeriodRows(graph, rows, world_size);
  if (!graph.needs_whole_shares()) return std::min(rows, period);
  // Shares of another length that begin at the same rows of the period.
  const auto ranks = static_cast<uint64_t>(world_size);
  const uint64_t share = rows / ranks;
  return ranks * (share < 2 * period ? share : period + share % period);
}

uint64_t EvaluatedRowOf(const ProgramGraph& graph, const ValueType& type, uint64_t row,
                        uint64_t rows, int world_size) {
  if (type.rows == Rows::kOne) return row;
  const uint64_t period = PeriodRows(graph, rows, world_size);
  const uint64_t evaluated = EvaluatedRows(graph, rows, world_size);
  if (evaluated == rows) return row;
  if (!graph.needs_whole_shares()) return row % period;
  const auto ranks = static_cast<uint64_t>(world_size);
  const uint64_t share = rows / ranks;
  return row / share * (evaluated / ranks) + row % share % period;
}

}  // namespace cotune
