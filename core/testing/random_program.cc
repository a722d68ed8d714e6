#include "core/testing/random_program.h"

#include <iterator>
#include <random>
#include <vector>

#include "fmt/format.h"

namespace cotune {
namespace {

class Writer {
 public:
  Writer(uint64_t seed, int world_size) : random_(seed), world_size_(world_size) {}

  std::string Write() {
    static constexpr const char* kDtypes[] = {"f32", "bf16", "f16", "f64", "i32", "bf16", "f32"};
    static constexpr int kColumns[] = {1, 2, 3, 17, 64, 129};
    dtype_ = Pick(kDtypes);
    is_float_ = dtype_ != "i32";
    columns_ = Pick(kColumns);
    static constexpr const char* kCollectives[] = {"all_reduce", "all_reduce", "reduce_scatter",
                                                   "all_to_all", "broadcast",  "all_gather"};
    const std::string collective = Pick(kCollectives);
    const bool is_gather = collective == "all_gather";
    rows_ = is_gather ? "R/n" : "R";
    text_ = fmt::format("%x = input {} [{}, {}]\n", dtype_, rows_, columns_);
    text_ += fmt::format("%gain = input {} [1, {}] replicated\n", dtype_, columns_);
    const std::string after = is_gather ? "R" : collective == "reduce_scatter" ? "R/n" : "R";
    const bool has_residual = after == "R" && Chance(2);
    if (has_residual) {
      text_ += fmt::format("%residual = input {} [R, {}] replicated\n", dtype_, columns_);
    }
    std::string value = "%x";
    if (Chance(3)) value = Local(value, false);
    value = Collect(collective, value);
    rows_ = after;
    if (after == "R/n" && Chance(2)) {
      value = Local(value, false);
      value = Collect("all_gather", value);
      rows_ = "R";
    }
    uses_gain_ = false;
    const int operations = 1 + Number(4);
    for (int i = 0; i < operations; ++i) value = Local(value, true);
    if (!uses_gain_) value = Define(fmt::format("mul {}, %gain", value));
    std::string outputs = value;
    if (has_residual && rows_ == "R") {
      const std::string stream = Define(fmt::format("add {}, %residual", value));
      outputs = value + ", " + stream + (Chance(2) ? " into %residual" : "");
    } else if (has_residual) {
      // An input that nobody uses is no program.
      const std::string unused = Define("neg %residual");
      outputs += ", " + unused;
    }
    return text_ + "return " + outputs + "\n";
  }

 private:
  template <typename T, size_t n>
  T Pick(const T (&values)[n]) {
    return values[random_() % n];
  }
  int Number(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  bool Chance(int of) { return Number(of) == 0; }

  std::string Define(const std::string& operation) {
    std::string name = fmt::format("%v{}", count_++);
    text_ += fmt::format("{} = {}\n", name, operation);
    return name;
  }

  std::string Collect(const std::string& collective, const std::string& value) {
    static constexpr const char* kReductions[] = {"sum", "sum", "max", "min", "average"};
    if (collective == "all_reduce" || collective == "reduce_scatter") {
      return Define(fmt::format("{} {} {}", collective, Pick(kReductions), value));
    }
    if (collective == "broadcast") {
      return Define(fmt::format("broadcast {}, root={}", value, Number(world_size_)));
    }
    return Define(fmt::format("{} {}", collective, value));
  }

  // One local operation on the value, of its own type.
  std::string Local(const std::string& value, bool may_use_gain) {
    if (is_float_ && Chance(3)) {
      static constexpr const char* kFunctions[] = {"silu",    "gelu", "gelu_tanh", "tanh",
                                                   "sigmoid", "abs",  "relu",      "neg"};
      return Define(fmt::format("{} {}", Pick(kFunctions), value));
    }
    if (is_float_ && may_use_gain && Chance(3)) {
      uses_gain_ = true;
      if (Chance(2)) return Define(fmt::format("layer_norm {}, %gain, %gain, eps=1e-5", value));
      return Define(fmt::format("rms_norm {}, %gain, eps=1e-6", value));
    }
    if (is_float_ && Chance(4)) return Define(fmt::format("softmax {}", value));
    if (is_float_ && Chance(4)) {
      const std::string mean = Define(fmt::format("row_mean {}", value));
      const bool is_narrow = dtype_ == "bf16" || dtype_ == "f16";
      const std::string narrow =
          is_narrow ? Define(fmt::format("cast {}, to={}", mean, dtype_)) : mean;
      return Define(fmt::format("sub {}, {}", value, narrow));
    }
    switch (Number(5)) {
      case 0:
        return Define(fmt::format("mul {}, {}", value, is_float_ ? "0.75" : "3"));
      case 1:
        return Define(fmt::format("add {}, {}", value, is_float_ ? "-0.5" : "-2"));
      case 2:
        return Define(fmt::format("clamp {}, low=-2, high=3", value));
      case 3: {
        const std::string less = Define(fmt::format("less {}, 0", value));
        const std::string negated = Define(fmt::format("neg {}", value));
        return Define(fmt::format("where {}, {}, {}", less, negated, value));
      }
      default:
        if (!may_use_gain) return Define(fmt::format("max {}, 0", value));
        uses_gain_ = true;
        return Define(fmt::format("add {}, %gain", value));
    }
  }

  std::mt19937_64 random_;
  const int world_size_;
  std::string dtype_;
  bool is_float_ = true;
  int columns_ = 1;
  std::string rows_;
  std::string text_;
  bool uses_gain_ = false;
  int count_ = 0;
};

}  // namespace

std::string RandomProgram(uint64_t seed, int world_size) {
  return Writer(seed, world_size).Write();
}

}  // namespace cotune
