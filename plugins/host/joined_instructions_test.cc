// Parts whose instructions become fewer before they run: they give the bits of single elements.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "plugins/host/float8.h"
#include "plugins/host/sdk_names.h"
#include "plugins/host/testing/run_part.h"
#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::host {
namespace {

using sdk::ValueDtype;

// Around the blocks and the whole vectors of every unit.
constexpr uint64_t kColumns[] = {1, 15, 127, 128, 129, 1023, 1024, 1025, 1151, 2305};

// (x first y) second z, where the second operand is a row for all rows, a number a row, or has all.
struct TwoOperations {
  ValueDtype inputs;
  ValueDtype output;
  uint32_t first;
  uint32_t second;  // 0: none
  int shape;        // of y
  bool rounds;
};

sdk::Program MakeTwo(const TwoOperations& two, uint64_t columns) {
  constexpr auto kF32 = ValueDtype::kF32;
  PartBuilder part(2);
  const int x = part.Input(two.inputs, columns);
  const int y = part.Input(two.inputs, two.shape == 2 ? 1 : columns,
                           two.shape == 1 ? COTUNE_ROWS_ONE : COTUNE_ROWS_ALL);
  const int z = part.Input(two.inputs, columns, COTUNE_ROWS_ONE);
  const auto lanes = [&](int value) { return two.inputs == kF32 ? value : part.Cast(value, kF32); };
  const int wide_x = lanes(x);
  const int wide_y = lanes(y);
  int result = part.Node(two.first, {wide_x, wide_y});
  if (two.second == COTUNE_NODE_RELU) result = part.Node(two.second, {result});
  if (two.second == COTUNE_NODE_MUL) result = part.Node(two.second, {result, lanes(z)});
  part.Output(two.output == kF32 ? result : part.Cast(result, two.output));
  part.program.rounds_values = two.rounds;
  return part.program;
}

TEST(JoinedInstructionsTest, TwoOperationsEqualScalarLoopsOnEveryTarget) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(21);
    for (const ValueDtype inputs : {ValueDtype::kF32, ValueDtype::kBf16, ValueDtype::kF16}) {
      for (const ValueDtype output : {ValueDtype::kF32, inputs, ValueDtype::kF8E4M3}) {
        for (const uint32_t first : {COTUNE_NODE_ADD, COTUNE_NODE_SUB, COTUNE_NODE_MUL}) {
          for (const uint32_t second :
               {uint32_t{0}, uint32_t{COTUNE_NODE_RELU}, uint32_t{COTUNE_NODE_MUL}}) {
            for (int shape = 0; shape < 3; ++shape) {
              const uint64_t columns = kColumns[random() % std::size(kColumns)];
              const sdk::Program program =
                  MakeTwo({inputs, output, first, second, shape, random() % 2 == 0}, columns);
              const auto operands = RandomInputs(program, random);
              ASSERT_EQ(Difference(RunPart(program, operands, random() % 3),
                                   NaivePart(program, operands)),
                        "")
                  << target << " inputs " << static_cast<int>(inputs) << " output "
                  << static_cast<int>(output) << " operations " << first << " " << second
                  << " shape " << shape << " columns " << columns;
            }
          }
        }
      }
    }
  });
}

// Every operation whose operands and result are lanes in memory: odd columns and addresses.
TEST(JoinedInstructionsTest, LanesInMemoryAreReadAndWrittenWhereTheyAre) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(22);
    for (const ValueDtype dtype : {ValueDtype::kF32, ValueDtype::kF64, ValueDtype::kI32,
                                   ValueDtype::kI64, ValueDtype::kU8, ValueDtype::kI8}) {
      for (const uint64_t columns : kColumns) {
        for (const bool is_in_place : {false, true}) {
          PartBuilder part(3);
          const int x = part.Input(dtype, columns);
          const int y = part.Input(dtype, columns);
          const int weights = part.Input(dtype, columns, COTUNE_ROWS_ONE);
          const int sum = part.Node(COTUNE_NODE_ADD, {x, y});
          part.Output(part.Node(COTUNE_NODE_MAX, {sum, weights}), is_in_place ? x : -1);
          const auto inputs = RandomInputs(part.program, random);
          ASSERT_EQ(Difference(RunPart(part.program, inputs, columns % 3),
                               NaivePart(part.program, inputs)),
                    "")
              << target << " dtype " << static_cast<int>(dtype) << " columns " << columns;
        }
      }
    }
  });
}

// The result of the first operation overwrites an input that the operation after it reads.
TEST(JoinedInstructionsTest, AnInputIsOverwrittenAfterItsLastReader) {
  std::mt19937_64 random(23);
  for (const ValueDtype dtype : {ValueDtype::kF32, ValueDtype::kBf16}) {
    for (const uint64_t columns : kColumns) {
      for (const bool is_first : {true, false}) {
        PartBuilder part(2);
        const int x = part.Input(dtype, columns);
        const int y = part.Input(dtype, columns);
        const int weights = part.Input(dtype, columns, COTUNE_ROWS_ONE);
        const int sum = part.Node(COTUNE_NODE_ADD, {x, weights});
        const int product = part.Node(COTUNE_NODE_MUL, {x, y});
        part.Output(is_first ? sum : product, x);
        part.Output(is_first ? product : sum, y);
        const auto inputs = RandomInputs(part.program, random);
        EXPECT_EQ(Difference(RunPart(part.program, inputs, 1), NaivePart(part.program, inputs)), "")
            << "dtype " << static_cast<int>(dtype) << " columns " << columns;
      }
    }
  }
}

TEST(JoinedInstructionsTest, SumsOfSquaresHaveTheTreeOfRowSums) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(24);
    for (const ValueDtype dtype : {ValueDtype::kF32, ValueDtype::kBf16}) {
      for (const uint64_t columns : kColumns) {
        for (const bool is_square_read_twice : {false, true}) {
          PartBuilder part(2);
          const int x = part.Input(dtype, columns);
          const int wide = dtype == ValueDtype::kF32 ? x : part.Cast(x, ValueDtype::kF32);
          const int square = part.Node(COTUNE_NODE_MUL, {wide, wide});
          part.Output(part.Node(COTUNE_NODE_ROW_SUM, {square}));
          if (is_square_read_twice) part.Output(square);
          const auto inputs = RandomInputs(part.program, random, false);
          ASSERT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "")
              << target << " dtype " << static_cast<int>(dtype) << " columns " << columns;
        }
      }
    }
  });
}

// The last bits of f32 around each boundary between two numbers of the format, and every bf16.
template <class Format>
std::vector<float> NumbersAround() {
  std::vector<float> numbers;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    numbers.push_back(F32FromBf16(static_cast<uint16_t>(bits)));
  }
  for (int code = 0; code < 127; ++code) {
    const float low = Format::ToF32(static_cast<uint8_t>(code));
    const float high = Format::ToF32(static_cast<uint8_t>(code + 1));
    if (!std::isfinite(low)) continue;
    const float middle = std::isfinite(high) ? (low + high) / 2 : low * 1.0625f;
    for (const float each : {low, middle}) {
      for (const float near : {std::nextafter(each, 0.0f), each, std::nextafter(each, INFINITY)}) {
        numbers.push_back(near);
        numbers.push_back(-near);
      }
    }
  }
  return numbers;
}

// Exactly the bits of float8.h, those of NaN as well.
template <class Format>
void ExpectFormat(ValueDtype dtype, const std::string& target) {
  const std::vector<float> numbers = NumbersAround<Format>();
  PartBuilder to_format(1);
  to_format.Output(to_format.Cast(to_format.Input(ValueDtype::kF32, numbers.size()), dtype));
  PartArray input{ValueDtype::kF32, std::vector<std::byte>(numbers.size() * 4)};
  std::memcpy(input.bytes.data(), numbers.data(), input.bytes.size());
  const auto codes = RunPart(to_format.program, {input});
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(std::to_integer<int>(codes[0].bytes[i]), Format::FromF32(numbers[i]))
        << target << " of " << numbers[i];
  }
  PartBuilder from_format(1);
  from_format.Output(from_format.Cast(from_format.Input(dtype, 256), ValueDtype::kF32));
  PartArray all{dtype, std::vector<std::byte>(256)};
  for (int i = 0; i < 256; ++i) all.bytes[i] = static_cast<std::byte>(i);
  const auto floats = RunPart(from_format.program, {all});
  for (int i = 0; i < 256; ++i) {
    uint32_t seen = 0;
    std::memcpy(&seen, &floats[0].bytes[4 * i], sizeof(seen));
    ASSERT_EQ(seen, std::bit_cast<uint32_t>(Format::ToF32(static_cast<uint8_t>(i))))
        << target << " code " << i;
  }
}

TEST(JoinedInstructionsTest, EightBitFloatsHaveTheBitsOfSingleOnes) {
  OnEveryTarget([](const std::string& target) {
    ExpectFormat<F8E4M3>(ValueDtype::kF8E4M3, target);
    ExpectFormat<F8E5M2>(ValueDtype::kF8E5M2, target);
  });
}

}  // namespace
}  // namespace cotune::host
