// Random parts, and the operations and shapes that they are drawn from.
#ifndef COTUNE_PLUGINS_SDK_TESTING_RANDOM_PART_H_
#define COTUNE_PLUGINS_SDK_TESTING_RANDOM_PART_H_

#include <cstdint>
#include <random>
#include <vector>

#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::sdk {

inline constexpr ValueDtype kPartDtypes[] = {
    ValueDtype::kF32, ValueDtype::kF64, ValueDtype::kF16, ValueDtype::kBf16,   ValueDtype::kI32,
    ValueDtype::kI64, ValueDtype::kU8,  ValueDtype::kI8,  ValueDtype::kF8E4M3, ValueDtype::kF8E5M2};
inline constexpr uint32_t kLastElementwise = COTUNE_NODE_WHERE;

// Whether results of the kind are not exact, but within a bound.
bool IsFunction(uint32_t kind);
// How many operands an elementwise kind has.
uint64_t KindOperands(uint32_t kind);
bool TakesIntegers(uint32_t kind);
// An input [1, C], [R, 1], [1, 1] for the shapes 1 to 3, else [R, C].
PartOperand InputOf(PartBuilder& part, ValueDtype dtype, uint64_t columns, int shape);

struct RandomPartOptions {
  bool has_functions = false;
  // Only what CheckProgram takes: nothing is computed with i8 and the floats of 8 bits, and rows of
  // f32 and f64 alone are reduced.
  bool is_checked = false;
  // Values of a share of the rows, and values of other columns, which no node has together.
  bool has_shares = false;
  bool has_other_columns = false;
};

class RandomPart {
 public:
  explicit RandomPart(uint64_t seed, RandomPartOptions options = {})
      : random_(seed), options_(options) {}

  // `rows` up to 3 by chance; a share has one less, or none.
  Program Make();
  std::mt19937_64& random() { return random_; }

 private:
  // What the operands of a node fit to; 0: any.
  struct Fit {
    uint32_t rows_kind = 0;
    uint64_t columns = 0;
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  void AddInputs(PartBuilder& part);
  int AnyValue(const PartBuilder& part, const Fit& fit);
  int ValueOf(PartBuilder& part, ValueDtype dtype, const Fit& fit);
  // One of the values, of a dtype that can be computed with.
  int FirstOperand(PartBuilder& part, Fit& fit);
  uint32_t KindFor(ValueDtype dtype);
  void AddNode(PartBuilder& part);
  void AddOutputs(PartBuilder& part);
  int OutputValue(PartBuilder& part, int value);
  // Now and then an input that the value can overwrite and no other output does.
  int InputLike(const PartBuilder& part, int value);

  std::mt19937_64 random_;
  const RandomPartOptions options_;
  uint64_t columns_ = 1;
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_TESTING_RANDOM_PART_H_
