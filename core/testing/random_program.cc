#include "core/testing/random_program.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// A value of the program that is being written.
struct Value {
  std::string name;
  std::string dtype;
  std::string rows;  // "1", "R" or "R/n"
  int columns = 1;
  // About the largest magnitude; operations that would leave the range of a dtype are avoided.
  double size = 8;
  int behind = 0;       // collectives on the longest path to it
  int defined = -1;     // the node that defines it; -1: an input
  int last_read = 0;    // of an input: behind the last node that reads it
  bool is_free = true;  // of an input: no output overwrites it

  bool is_narrow() const { return dtype == "bf16" || dtype == "f16"; }
  bool is_float() const { return is_narrow() || dtype == "f32" || dtype == "f64"; }
  bool is_integer() const { return dtype == "i32" || dtype == "i64" || dtype == "u8"; }
  bool has_type_of(const Value& other) const {
    return dtype == other.dtype && rows == other.rows && columns == other.columns;
  }
};

constexpr int kNodesForOperations = 48;  // of 64: the rest is for collectives and casts
constexpr int kCollectivesInARow = 4;

class Writer {
 public:
  Writer(uint64_t seed, int world_size, int collectives_max)
      : random_(seed), world_size_(world_size), collectives_left_(collectives_max) {}

  std::string Write() {
    static constexpr int kColumns[] = {1, 2, 3, 17, 64, 129};
    dtype_ = AnyDtype();
    columns_ = Pick(kColumns);
    // Collectives that do not depend on each other: one, two or three.
    const int lanes = std::min(Chance(3) ? 2 + Number(2) : 1, collectives_left_);
    const int first_with_rows = Number(lanes);
    std::vector<Value> values;
    for (int lane = 0; lane < lanes; ++lane) {
      values.push_back(Lane(lane == first_with_rows, lanes - lane - 1));
    }
    Value value = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      if (AreRowsApart(value, values[i]) || Chance(4)) {
        outputs_.push_back(values[i]);
      } else {
        value = Combined(value, values[i]);
      }
    }
    if (lanes > 1 && value.rows != "1" && Chance(3)) value = AnyCollective(value);
    if (value.rows == "R" && Chance(2)) value = WithResidual(value);
    outputs_.insert(outputs_.begin(), value);
    return inputs_text_ + nodes_text_ + "return " + Outputs() + "\n";
  }

 private:
  template <typename T, size_t n>
  T Pick(const T (&values)[n]) {
    return values[random_() % n];
  }
  int Number(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  bool Chance(int of) { return Number(of) == 0; }

  // A value of this type; the text of the operation names what it reads.
  Value Define(Value type, const std::string& operation) {
    type.name = fmt::format("%v{}", nodes_);
    type.defined = nodes_++;
    nodes_text_ += fmt::format("{} = {}\n", type.name, operation);
    for (Value& input : inputs_) {
      if (operation.find(input.name) != std::string::npos) input.last_read = nodes_;
    }
    return type;
  }
  Value Define(Value type, std::string_view operation, const std::string& operands, double size) {
    type.size = size;
    return Define(std::move(type), fmt::format("{} {}", operation, operands));
  }

  Value Input(const std::string& name, const std::string& dtype, const std::string& rows,
              int columns, bool is_replicated) {
    const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                    [&](const Value& each) { return each.name == name; });
    if (found != inputs_.end()) return *found;
    const bool is_never_fused = inputs_.size() % 4 == 3;
    inputs_text_ +=
        fmt::format("{} = input {} [{}, {}]{}{}\n", name, dtype, rows, columns,
                    is_replicated ? " replicated" : "", is_never_fused ? " nofuse" : "");
    const bool is_wide = dtype == "u8";
    inputs_.push_back({.name = name,
                       .dtype = dtype,
                       .rows = rows,
                       .columns = columns,
                       .size = is_wide ? 255.0 : 64.0 / (dtype[0] == 'i' ? 1 : 8)});
    return inputs_.back();
  }
  // One row, the same on every rank.
  Value Gain(const std::string& dtype) {
    return Input("%gain_" + dtype, dtype, "1", columns_, true);
  }

  const char* AnyDtype() {
    static constexpr const char* kDtypes[] = {"f32", "bf16", "f16", "f64",     "i32",
                                              "f32", "bf16", "i64", "u8",      "f16",
                                              "f32", "bf16", "i8",  "f8_e4m3", "f8_e5m2"};
    return Pick(kDtypes);
  }

  // An input, a collective, what stands around it, and perhaps further collectives behind it.
  // Later lanes have a collective each.
  Value Lane(bool has_rows, int later_lanes) {
    if (lanes_ > 0 && Chance(3)) dtype_ = AnyDtype();
    const bool is_row = !has_rows && Chance(2);
    const bool is_gather = !is_row && Chance(6);
    const char* const rows = is_row ? "1" : is_gather ? "R/n" : "R";
    Value value = Input(fmt::format("%x{}", lanes_++), dtype_, rows, columns_, false);
    if (Chance(3)) value = Local(value);
    value = AnyCollective(value);
    if (Chance(6)) Return(value);
    if (!is_row && collectives_left_ > later_lanes && Chance(3)) {
      if (Chance(2)) value = Local(value);
      value = AnyCollective(value);
    }
    for (int operations = 1 + Number(4); operations > 0; --operations) value = Local(value);
    return value;
  }

  bool IsReduced(const Value& value) const { return value.is_float() || value.is_integer(); }

  // A collective that takes the value as it is, or cast to what can be reduced.
  Value AnyCollective(const Value& value) {
    if (value.behind == kCollectivesInARow || collectives_left_ == 0) return value;
    if (value.rows == "R/n") return Collect("all_gather", value, "R");
    if (value.rows == "1") {
      return IsReduced(value) && Chance(2) ? Collect("all_reduce", value, "1")
                                           : Collect("broadcast", value, "1");
    }
    static constexpr const char* kCollectives[] = {"all_reduce",     "all_reduce", "all_reduce",
                                                   "reduce_scatter", "all_to_all", "broadcast"};
    const std::string collective = Pick(kCollectives);
    if (collective == "all_reduce" || collective == "reduce_scatter") {
      return Collect(collective, Computable(value), collective == "all_reduce" ? "R" : "R/n");
    }
    return Collect(collective, value, "R");
  }

  Value Collect(const std::string& collective, const Value& value, const std::string& rows) {
    Value type = value;
    type.rows = rows;
    ++type.behind;
    --collectives_left_;
    if (collective == "broadcast") {
      return Define(type, fmt::format("broadcast {}, root={}", value.name, Number(world_size_)));
    }
    if (collective != "all_reduce" && collective != "reduce_scatter") {
      return Define(type, fmt::format("{} {}", collective, value.name));
    }
    static constexpr const char* kReductions[] = {"sum", "sum", "max", "min", "average", "product"};
    std::string reduction = Pick(kReductions);
    // The mean of integers whose sum wraps around is not defined.
    if (reduction == "average" && !value.is_float() && value.size * world_size_ > Largest(value)) {
      reduction = "max";
    }
    // Factors of inputs are 1 and 2, at most three of them 2.
    const bool is_input = value.defined < 0;
    if (reduction == "product" && value.is_float() && !is_input && value.size > 2) {
      reduction = "sum";
    }
    if (reduction == "sum") type.size *= world_size_;
    if (reduction == "product") type.size = is_input ? 8 : std::pow(value.size, world_size_);
    return Define(type, fmt::format("{} {} {}", collective, reduction, value.name));
  }

  static double Largest(const Value& value) { return value.dtype == "u8" ? 255 : 0x1p31; }

  // A value that local operations take.
  Value Computable(const Value& value) {
    if (value.is_float() || value.is_integer()) return value;
    static constexpr const char* kWider[] = {"f32", "bf16", "f16", "f64"};
    return Cast(value, value.dtype == "i8" && Chance(2) ? "i32" : Pick(kWider));
  }

  Value Cast(const Value& value, const std::string& dtype) {
    if (value.dtype == dtype) return value;
    const bool is_short = dtype == "f16" || dtype.starts_with("f8");
    Value from = value;
    if (is_short && value.is_integer() && value.size > 448) {
      from = Define(value, "clamp", value.name + ", low=1, high=100", 100);
    }
    Value type = from;
    type.dtype = dtype;
    if (dtype == "u8") type.size = 255;
    if (dtype == "i8") type.size = 128;
    return Define(type, fmt::format("cast {}, to={}", from.name, dtype));
  }

  static bool AreRowsApart(const Value& a, const Value& b) {
    return a.rows != b.rows && a.rows != "1" && b.rows != "1";
  }

  // Both in one, in the dtype of one of them.
  Value Combined(Value a, Value b) {
    a = Tame(Computable(a));
    b = Tame(Cast(Computable(b), a.dtype));
    Value type = a.rows == "1" ? b : a;
    type.behind = std::max(a.behind, b.behind);
    const std::string both = a.name + ", " + b.name;
    switch (Number(a.is_float() ? 7 : 5)) {
      case 0:
        return Define(type, "mul", both, a.size * b.size);
      case 1:
        return Define(type, "min", both, std::max(a.size, b.size));
      case 2:
        return Define(type, "max", both, std::max(a.size, b.size));
      case 3: {
        Value condition = type;
        condition.dtype = "u8";
        condition = Define(condition, Chance(2) ? "less" : "equal", both, 1);
        if (Chance(2)) Return(condition);
        return Define(type, "where", condition.name + ", " + both, std::max(a.size, b.size));
      }
      case 4:
        return Define(type, "sub", both, a.size + b.size);
      case 5: {
        const Value positive = Positive(b);
        return Define(type, "div", a.name + ", " + positive.name, 2 * a.size);
      }
      default:
        return Define(type, "add", both, a.size + b.size);
    }
  }

  // Adds an input with R rows, which the sum may overwrite while it is used further.
  Value WithResidual(const Value& value) {
    const Value addend = Tame(Computable(value));
    const Value residual = Input("%residual", addend.dtype, "R", columns_, Chance(2));
    Value stream = addend;
    stream = Define(stream, "add", addend.name + ", " + residual.name, addend.size + residual.size);
    if (Chance(2)) return stream;
    Return(stream);
    return Local(stream);
  }

  // Below the sizes whose products and powers leave the range of a dtype.
  Value Tame(const Value& value) {
    if (!value.is_float() || value.size < 100) return value;
    if (Chance(2)) return Define(value, "clamp", value.name + ", low=-32, high=48", 48);
    return Define(value, "mul", fmt::format("{}, {}", value.name, std::exp2(-8)), value.size / 256);
  }

  // At least 1/2.
  Value Positive(const Value& value) {
    const Value magnitude = Define(value, "abs", value.name, value.size);
    return Define(value, "add", magnitude.name + ", 0.5", value.size + 0.5);
  }

  Value Local(const Value& any) {
    if (nodes_ > kNodesForOperations) return Computable(any);
    const Value value = Tame(Computable(any));
    if (!value.is_float()) return OfIntegers(value);
    switch (Number(10)) {
      case 0:
      case 1:
        return Function(value);
      case 2:
        return OfPositive(value);
      case 3:
        return Norm(value);
      case 4:
        return OfRows(value);
      case 5:
        return Selected(value);
      case 6:
        return value.dtype == "f64" ? Elementwise(value) : Quantized(value);
      case 7:
        return ThroughAnotherDtype(value);
      default:
        return Elementwise(value);
    }
  }

  Value Function(const Value& value) {
    static constexpr const char* kFunctions[] = {"silu",    "gelu", "gelu_tanh", "tanh", "softmax",
                                                 "sigmoid", "abs",  "relu",      "neg",  "round"};
    const std::string function = Pick(kFunctions);
    const bool is_squashed = function == "tanh" || function == "sigmoid" || function == "softmax";
    return Define(value, function, value.name, is_squashed ? 1 : value.size);
  }

  Value OfPositive(const Value& value) {
    switch (Number(5)) {
      case 0:
        return Define(value, "log", Positive(value).name, std::log(value.size + 2));
      case 1:
        return Define(value, "sqrt", Positive(value).name, std::sqrt(value.size + 1));
      case 2:
        return Define(value, "rsqrt", Positive(value).name, 1.5);
      case 3: {
        const Value positive = Positive(value);
        return Define(value, "div",
                      Chance(2) ? "3, " + positive.name : value.name + ", " + positive.name, 6);
      }
      default: {
        const Value bounded = Define(value, "clamp", value.name + ", low=-4, high=2.5", 4);
        return Define(value, "exp", bounded.name, 12.5);
      }
    }
  }

  Value Norm(const Value& value) {
    const Value gain = Gain(value.is_narrow() && Chance(3) ? "f32" : value.dtype);
    const std::string operands = value.name + ", " + gain.name;
    const double size = gain.size * std::sqrt(columns_);
    if (Chance(2)) {
      return Define(value, "layer_norm", operands + ", " + gain.name + ", eps=1e-5", 2 * size);
    }
    return Define(value, "rms_norm", operands + ", eps=1e-6", size);
  }

  // One number for each row, in the value's dtype and used beside it.
  Value OfRows(const Value& value) {
    static constexpr const char* kReductions[] = {"row_sum", "row_max", "row_mean",
                                                  "row_mean_square"};
    const std::string reduction = Pick(kReductions);
    Value of_rows = value;
    of_rows.columns = 1;
    of_rows.dtype = value.dtype == "f64" ? "f64" : "f32";
    of_rows = Define(of_rows, reduction, value.name, value.size);
    if (Chance(4)) Return(of_rows);
    if (reduction == "row_sum") {
      of_rows =
          Define(of_rows, "mul", fmt::format("{}, {}", of_rows.name, 1.0 / columns_), value.size);
    }
    const bool is_square = reduction == "row_mean_square";
    if (is_square) {
      of_rows = Define(of_rows, "add", of_rows.name + ", 0.25", value.size * value.size);
      of_rows = Define(of_rows, "rsqrt", of_rows.name, 2);
    }
    of_rows = Cast(of_rows, value.dtype);
    return Define(value, is_square ? "mul" : "sub", value.name + ", " + of_rows.name,
                  2 * value.size);
  }

  Value Selected(const Value& value) {
    Value condition = value;
    condition.dtype = "u8";
    static constexpr const char* kLimits[] = {"0", "1", "3"};
    condition =
        Define(condition, Chance(2) ? "less" : "equal", value.name + ", " + Pick(kLimits), 1);
    if (Chance(4)) Return(condition);
    const std::string other = Chance(2) ? "2" : Define(value, "neg", value.name, value.size).name;
    return Define(value, "where", condition.name + ", " + other + ", " + value.name, value.size);
  }

  // Quantized by row and back.
  Value Quantized(const Value& value) {
    static constexpr const char* kDtypes[] = {"i8", "f8_e4m3", "f8_e5m2"};
    const std::string to = Pick(kDtypes);
    Value scale = value;
    scale.dtype = "f32";
    scale.columns = 1;
    scale = Define(scale, "quantize_scale", fmt::format("{}, to={}", value.name, to), value.size);
    Value small = value;
    small.dtype = to;
    small =
        Define(small, "quantize", fmt::format("{}, {}, to={}", value.name, scale.name, to), 448);
    if (Chance(2)) Return(small);
    if (Chance(2)) Return(scale);
    Value wide = Cast(small, "f32");
    wide = Define(wide, "mul", wide.name + ", " + scale.name, value.size);
    return Chance(3) ? wide : Cast(wide, value.dtype);
  }

  // A cast to a narrower or another kind of dtype, and mostly back.
  Value ThroughAnotherDtype(const Value& value) {
    static constexpr const char* kDtypes[] = {"f32", "bf16", "f16", "f64",     "i32",
                                              "i64", "u8",   "i8",  "f8_e4m3", "f8_e5m2"};
    const std::string to = Pick(kDtypes);
    const Value other = Cast(value, to);
    if (other.name == value.name) return Elementwise(value);
    if (Chance(3)) Return(other);
    return Chance(3) ? Computable(other) : Cast(other, value.dtype);
  }

  Value Elementwise(const Value& value) {
    switch (Number(8)) {
      case 0:
        return Define(value, "mul", value.name + ", 0.75", value.size);
      case 1:
        return Define(value, "add", value.name + ", -0.5", value.size + 1);
      case 2:
        return Define(value, "clamp", value.name + ", low=-2, high=3", 3);
      case 3:
        return Define(value, "sub", "1.5, " + value.name, value.size + 1.5);
      case 4:
        return Define(value, "div", value.name + ", 3", value.size);
      default:
        break;
    }
    static constexpr const char* kOfTwo[] = {"add", "mul", "sub", "min", "max"};
    const std::string operation = Pick(kOfTwo);
    const Value gain = Gain(value.dtype);
    return Define(value, operation, value.name + ", " + gain.name,
                  operation == "mul" ? value.size * gain.size : value.size + gain.size);
  }

  Value OfIntegers(const Value& value) {
    static constexpr const char* kOfTwo[] = {"add", "sub", "mul", "min", "max"};
    static constexpr const char* kOfOne[] = {"neg", "abs", "relu"};
    static constexpr const char* kDtypes[] = {"f32", "f16",     "f64", "bf16",   "u8",
                                              "i8",  "f8_e4m3", "i64", "f8_e5m2"};
    const double largest = Largest(value);
    switch (Number(7)) {
      case 0:
        return Define(value, "mul", value.name + ", 3", std::min(3 * value.size, largest));
      case 1:
        return Define(value, Pick(kOfOne), value.name, largest);
      case 2:
        return Define(value, "clamp", value.name + ", low=1, high=100", 100);
      case 3:
        return Selected(value);
      case 4: {
        const Value other = Cast(value, Pick(kDtypes));
        if (Chance(3)) Return(other);
        return Computable(other);
      }
      default:
        return Define(value, Pick(kOfTwo), value.name + ", " + Gain(value.dtype).name, largest);
    }
  }

  // Makes a value that is used further an output, too.
  void Return(const Value& value) {
    if (outputs_.size() < 8) outputs_.push_back(value);
  }

  // The outputs once each; one may overwrite an input of its type that nothing reads behind it.
  std::string Outputs() {
    std::string text;
    std::vector<std::string> returned;
    for (const Value& output : outputs_) {
      const auto before = std::find(returned.begin(), returned.end(), output.name);
      if (before != returned.end() || output.defined < 0) continue;
      returned.push_back(output.name);
      text += (text.empty() ? "" : ", ") + output.name;
      const auto into = std::find_if(inputs_.begin(), inputs_.end(), [&](const Value& input) {
        return input.is_free && input.has_type_of(output) && input.last_read <= output.defined + 1;
      });
      if (into == inputs_.end() || Chance(3)) continue;
      text += " into " + into->name;
      into->is_free = false;
    }
    return text;
  }

  std::mt19937_64 random_;
  const int world_size_;
  int collectives_left_;
  int columns_ = 1;
  int lanes_ = 0;
  int nodes_ = 0;
  std::string dtype_;  // of the lane that was written last
  std::string inputs_text_;
  std::string nodes_text_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
};

}  // namespace

std::string RandomProgram(uint64_t seed, int world_size, int collectives_max) {
  return Writer(seed, world_size, collectives_max).Write();
}

std::string RandomBucketProgram(uint64_t seed, int world_size) {
  std::mt19937_64 random(seed);
  const auto number = [&](uint64_t end) { return random() % end; };
  static constexpr std::string_view kDtypes[] = {"f32", "bf16", "f16", "i32", "f64", "i64"};
  static constexpr std::string_view kReductions[] = {"all_reduce sum {}", "all_reduce max {}"};
  static constexpr int kColumns[] = {1, 3, 64, 130, 1000};
  const std::string_view dtype = kDtypes[number(std::size(kDtypes))];
  const bool is_broadcast = number(4) == 0;
  const std::string call = is_broadcast ? fmt::format("broadcast {{}}, root={}",
                                                      number(static_cast<uint64_t>(world_size)))
                                        : std::string(kReductions[number(std::size(kReductions))]);
  const uint64_t collectives = 2 + number(6);
  std::string inputs;
  std::string nodes;
  std::vector<std::string> outputs;
  std::string twice;  // the operand of an earlier collective
  for (uint64_t i = 0; i < collectives; ++i) {
    const std::string_view rows = i > 0 && number(3) == 0 ? "1" : "R";
    const int columns = kColumns[number(std::size(kColumns))];
    inputs += fmt::format("%x{} = input {} [{}, {}]\n", i, dtype, rows, columns);
    std::string operand = fmt::format("%x{}", i);
    if (number(3) == 0) {
      nodes += fmt::format("%p{} = relu {}\n", i, operand);
      operand = fmt::format("%p{}", i);
      if (number(3) == 0) outputs.push_back(operand);
    }
    const bool is_again = !twice.empty() && number(4) == 0;
    const std::string sent = is_again ? twice : operand;
    nodes += fmt::format("%s{} = {}\n", i, fmt::format(fmt::runtime(call), sent));
    twice = operand;
    // An operand that no collective sends is read here, so that nothing is without use.
    if (is_again) nodes += fmt::format("%q{} = neg {}\n", i, operand);
    if (is_again) outputs.push_back(fmt::format("%q{}", i));
    const bool is_read = number(2) == 0;
    if (is_read) {
      nodes += fmt::format("%y{} = abs %s{}\n", i, i);
      // An input may be overwritten if no later node reads it.
      const bool overwrites = !is_again && operand[1] == 'p' && number(2) == 0;
      outputs.push_back(overwrites ? fmt::format("%y{} into %x{}", i, i) : fmt::format("%y{}", i));
    }
    if (!is_read || number(3) == 0) outputs.push_back(fmt::format("%s{}", i));
  }
  return fmt::format("{}{}return {}\n", inputs, nodes, fmt::join(outputs, ", "));
}

}  // namespace cotune
