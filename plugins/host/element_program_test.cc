#include "plugins/host/element_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "plugins/host/testing/run_part.h"
#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"
#include "plugins/sdk/testing/random_part.h"

namespace cotune::host {
namespace {

using sdk::InputOf;
using sdk::IsFunction;
using sdk::KindOperands;
using sdk::kLastElementwise;
using sdk::TakesIntegers;
using sdk::ValueDtype;

constexpr ValueDtype kFloats[] = {ValueDtype::kF32, ValueDtype::kF64, ValueDtype::kF16,
                                  ValueDtype::kBf16};

// A part of one operation whose operands have the shapes [R, C], [1, C], [R, 1] or [1, 1], so that
// the first has all rows and columns.
sdk::Program OneOperation(uint32_t kind, ValueDtype dtype, uint64_t rows, uint64_t columns,
                          int second_shape, bool rounds) {
  PartBuilder part(rows);
  std::vector<PartOperand> operands;
  const uint64_t count = KindOperands(kind);
  if (kind == COTUNE_NODE_WHERE) operands.push_back(InputOf(part, ValueDtype::kU8, columns, 0));
  while (operands.size() < count) {
    operands.push_back(InputOf(part, dtype, columns, operands.size() == 1 ? second_shape : 0));
  }
  part.Output(part.Node(kind, operands, -3, 7.5));
  part.program.rounds_values = rounds;
  return part.program;
}

TEST(ElementProgramTest, ExactOperationsEqualScalarLoopsOnEveryTarget) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(7);
    for (uint32_t kind = COTUNE_NODE_ADD; kind <= kLastElementwise; ++kind) {
      if (IsFunction(kind)) continue;
      for (const ValueDtype dtype : sdk::kPartDtypes) {
        if (!sdk::IsFloat(dtype) && !TakesIntegers(kind)) continue;
        for (const uint64_t columns : {1u, 7u, 8u, 1023u, 1025u}) {
          for (int shape = 0; shape < 4; ++shape) {
            const sdk::Program program = OneOperation(kind, dtype, 2, columns, shape, shape % 2);
            const auto inputs = RandomInputs(program, random);
            ASSERT_EQ(Difference(RunPart(program, inputs, columns % 3), NaivePart(program, inputs)),
                      "")
                << target << " kind " << kind << " dtype " << static_cast<int>(dtype) << " columns "
                << columns << " shape " << shape;
          }
        }
      }
    }
  });
}

TEST(ElementProgramTest, CastsEqualScalarLoopsOnEveryTarget) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(8);
    for (const ValueDtype from : sdk::kPartDtypes) {
      for (const ValueDtype to : sdk::kPartDtypes) {
        PartBuilder part(3);
        part.Output(part.Cast(part.Input(from, 1029), to));
        part.program.rounds_values = true;
        const auto inputs = RandomInputs(part.program, random);
        ASSERT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "")
            << target << " from " << static_cast<int>(from) << " to " << static_cast<int>(to);
      }
    }
  });
}

// Every number of 16 and 8 bits in and out again.
TEST(ElementProgramTest, NarrowFloatsKeepEveryPattern) {
  OnEveryTarget([](const std::string& target) {
    for (const ValueDtype dtype :
         {ValueDtype::kF16, ValueDtype::kBf16, ValueDtype::kF8E4M3, ValueDtype::kF8E5M2}) {
      const size_t patterns = PartBytes(dtype) == 2 ? 65536 : 256;
      PartBuilder part(1);
      const int x = part.Input(dtype, patterns);
      part.Output(x);
      part.Output(part.Cast(x, ValueDtype::kF32));
      PartArray all{dtype, std::vector<std::byte>(patterns * PartBytes(dtype))};
      for (size_t i = 0; i < patterns; ++i) {
        std::memcpy(&all.bytes[i * PartBytes(dtype)], &i, PartBytes(dtype));
      }
      const std::vector<PartArray> inputs = {all};
      ASSERT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "")
          << target << " dtype " << static_cast<int>(dtype);
    }
  });
}

// A cast to the value's own dtype, of all rows and of one, of many columns and of one.
TEST(ElementProgramTest, CopiesKeepAllBitsOnEveryTarget) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(13);
    for (const ValueDtype dtype : sdk::kPartDtypes) {
      for (const uint64_t columns : {1u, 7u, 1029u}) {
        for (const bool reduces : {false, true}) {
          PartBuilder part(3);
          const int x = part.Input(dtype, columns);
          const int number = part.Input(dtype, 1);
          const int row = part.Input(dtype, columns, COTUNE_ROWS_ONE);
          const int one = part.Input(dtype, 1, COTUNE_ROWS_ONE);
          for (const int input : {x, number, row, one}) part.Output(part.Cast(input, dtype));
          // A cast of a cast; and lanes of the same input.
          part.Output(part.Cast(part.Cast(x, dtype), dtype));
          const int wide = part.Cast(x, ValueDtype::kF32);
          if (reduces) part.Output(part.Node(COTUNE_NODE_ROW_SUM, {wide}));
          part.program.rounds_values = columns == 7;
          auto inputs = RandomInputs(part.program, random);
          for (PartArray& input : inputs) {
            for (std::byte& byte : input.bytes) byte = static_cast<std::byte>(random());
            // NaN of every float, with bits beside the first one.
            for (size_t b = 0; b < input.bytes.size() / 2; ++b) input.bytes[b] |= std::byte{0x7D};
          }
          for (const uint64_t rows_at_once : {0u, 2u}) {
            const auto seen = RunPart(part.program, inputs, columns % 3, rows_at_once);
            for (size_t i = 0; i < 5; ++i) {
              EXPECT_EQ(seen[i].bytes, inputs[i % 4].bytes)
                  << target << " dtype " << static_cast<int>(dtype) << " columns " << columns
                  << " output " << i;
            }
          }
        }
      }
    }
  });
}

TEST(ElementProgramTest, CopiesThatChangePlacesKeepAllBits) {
  for (const uint64_t columns : {1u, 1500u}) {
    for (const uint32_t rows_kind : {COTUNE_ROWS_ALL, COTUNE_ROWS_ONE}) {
      PartBuilder part(3);
      const int x = part.Input(ValueDtype::kBf16, columns, rows_kind);
      const int y = part.Input(ValueDtype::kBf16, columns, rows_kind);
      part.Output(part.Cast(y, ValueDtype::kBf16), x);
      part.Output(part.Cast(x, ValueDtype::kBf16), y);
      std::mt19937_64 random(14);
      auto inputs = RandomInputs(part.program, random);
      for (PartArray& input : inputs) {
        for (std::byte& byte : input.bytes)
          byte = static_cast<std::byte>(random()) | std::byte{0x7D};
      }
      const auto seen = RunPart(part.program, inputs);
      EXPECT_EQ(seen[0].bytes, inputs[1].bytes);
      EXPECT_EQ(seen[1].bytes, inputs[0].bytes);
    }
  }
}

double UlpOf(double number) {
  const auto size = static_cast<float>(std::abs(number));
  return static_cast<double>(std::nextafter(size, std::numeric_limits<float>::infinity())) -
         static_cast<double>(size);
}

struct FunctionCase {
  uint32_t kind;
  double ulps;       // of the result
  double term_ulps;  // of |x|, where 1 + erf or 1 + tanh cancel
  double (*exact)(double);
};

double ExactSigmoid(double x) { return 1 / (1 + std::exp(-x)); }

constexpr FunctionCase kFunctions[] = {
    {COTUNE_NODE_EXP, 4, 0, [](double x) { return std::exp(x); }},
    {COTUNE_NODE_LOG, 4, 0, [](double x) { return std::log(x); }},
    {COTUNE_NODE_TANH, 4, 0, [](double x) { return std::tanh(x); }},
    {COTUNE_NODE_SIGMOID, 4, 0, ExactSigmoid},
    {COTUNE_NODE_SILU, 5, 0, [](double x) { return x * ExactSigmoid(x); }},
    {COTUNE_NODE_GELU_ERF, 4, 2, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {COTUNE_NODE_GELU_TANH, 4, 2,
     [](double x) {
       return x * ExactSigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
     }},
};

// Numbers of every size that f32 has, and around the limits of what the functions are made of.
std::vector<float> FunctionArguments() {
  std::vector<float> arguments;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 30011) {
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    arguments.push_back(x);
    arguments.push_back(-x);
  }
  for (int i = -300000; i <= 300000; ++i) arguments.push_back(static_cast<float>(i) * 0.0004f);
  return arguments;
}

TEST(ElementProgramTest, FunctionsAreWithinTheirBoundsOnEveryTarget) {
  const std::vector<float> arguments = FunctionArguments();
  OnEveryTarget([&](const std::string& target) {
    for (const FunctionCase& function : kFunctions) {
      PartBuilder part(1);
      part.Output(part.Node(function.kind, {part.Input(ValueDtype::kF32, arguments.size())}));
      PartArray input{ValueDtype::kF32, std::vector<std::byte>(arguments.size() * 4)};
      std::memcpy(input.bytes.data(), arguments.data(), input.bytes.size());
      const std::vector<PartArray> seen = RunPart(part.program, {input});
      double worst = 0;
      for (size_t i = 0; i < arguments.size(); ++i) {
        const double x = arguments[i];
        const double exact = function.exact(x);
        const double got = PartElement(seen[0], i);
        if (std::isnan(exact) || std::isinf(static_cast<float>(exact))) {
          const bool same = std::isnan(exact) ? std::isnan(got) : got == static_cast<float>(exact);
          ASSERT_TRUE(same) << target << " kind " << function.kind << " of " << x << " is " << got;
          continue;
        }
        // A subnormal factor of silu has few bits, which the product with x keeps.
        const double factor =
            function.kind == COTUNE_NODE_SILU ? std::abs(x) * std::ldexp(1.0, -149) : 0;
        const double bound = function.ulps * UlpOf(exact) + function.term_ulps * UlpOf(x) + factor;
        worst = std::max(worst, std::abs(got - exact) / bound);
        ASSERT_LE(std::abs(got - exact), bound) << target << " kind " << function.kind << " of "
                                                << x << " is " << got << ", not " << exact;
      }
      RecordProperty("worst_of_bound_" + std::to_string(function.kind), std::to_string(worst));
    }
  });
}

TEST(ElementProgramTest, FunctionsOfSpecialValues) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan("")};
  OnEveryTarget([&](const std::string& target) {
    for (const FunctionCase& function : kFunctions) {
      for (const ValueDtype dtype : kFloats) {
        PartBuilder part(1);
        part.Output(part.Node(function.kind, {part.Input(dtype, std::size(special))}));
        PartArray input{dtype, std::vector<std::byte>(std::size(special) * PartBytes(dtype))};
        for (size_t i = 0; i < std::size(special); ++i) SetPartElement(input, i, special[i]);
        const std::vector<PartArray> inputs = {input};
        EXPECT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "")
            << target << " kind " << function.kind << " dtype " << static_cast<int>(dtype);
      }
    }
  });
}

TEST(ElementProgramTest, RowReductionsHaveOneTreeOnEveryTarget) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(9);
    for (const uint32_t kind : {COTUNE_NODE_ROW_SUM, COTUNE_NODE_ROW_MAX}) {
      for (const ValueDtype dtype : kFloats) {
        for (const uint64_t columns :
             {1u, 7u, 8u, 9u, 64u, 127u, 1023u, 1024u, 1025u, 3001u, 8192u}) {
          PartBuilder part(3);
          const int x = part.Input(dtype, columns);
          part.Output(part.Node(kind, {x}));
          part.program.rounds_values = true;
          const auto inputs = RandomInputs(part.program, random, columns % 2 == 0);
          ASSERT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "")
              << target << " kind " << kind << " dtype " << static_cast<int>(dtype) << " columns "
              << columns;
        }
      }
    }
  });
}

// The tree, and not only the naive loops' idea of it: 2^24 swallows a single 1, so that the sum
// says which elements met first.
TEST(ElementProgramTest, RowSumFoldsFromTheHighestBitDown) {
  PartBuilder part(1);
  part.Output(part.Node(COTUNE_NODE_ROW_SUM, {part.Input(ValueDtype::kF32, 32)}));
  PartArray input{ValueDtype::kF32, std::vector<std::byte>(32 * 4)};
  SetPartElement(input, 0, 16777216);  // leaf 0
  SetPartElement(input, 8, 1);         // leaf 1 meets leaf 3 first: 2 is not swallowed
  SetPartElement(input, 24, 1);
  EXPECT_EQ(PartElement(RunPart(part.program, {input})[0], 0), 16777218);
  SetPartElement(input, 24, 0);
  SetPartElement(input, 16, 1);  // leaf 2 meets leaf 0 first: both are swallowed
  EXPECT_EQ(PartElement(RunPart(part.program, {input})[0], 0), 16777216);
}

// What Lower() makes of residual + rms_norm.
sdk::Program ResidualNorm(ValueDtype dtype, uint64_t rows, uint64_t columns, bool rounds) {
  PartBuilder part(rows);
  const int x = part.Input(dtype, columns);
  const int residual = part.Input(dtype, columns);
  const int gamma = part.Input(dtype, columns, COTUNE_ROWS_ONE);
  const int stream = part.Node(COTUNE_NODE_ADD, {x, residual});
  const bool is_wide = dtype == ValueDtype::kF32;
  const int wide = is_wide ? stream : part.Cast(stream, ValueDtype::kF32);
  const int square = part.Node(COTUNE_NODE_MUL, {wide, wide});
  const int sum = part.Node(COTUNE_NODE_ROW_SUM, {square});
  const double columns_inverse = 1.0 / static_cast<double>(columns);
  const int mean = part.Node(COTUNE_NODE_MUL, {sum, PartOperand::Literal(columns_inverse)});
  const int shifted = part.Node(COTUNE_NODE_ADD, {mean, PartOperand::Literal(1e-6)});
  const int scale = part.Node(COTUNE_NODE_RSQRT, {shifted});
  const int scaled = part.Node(COTUNE_NODE_MUL, {wide, scale});
  const int wide_gamma = is_wide ? gamma : part.Cast(gamma, ValueDtype::kF32);
  const int y = part.Node(COTUNE_NODE_MUL, {scaled, wide_gamma});
  part.Output(is_wide ? y : part.Cast(y, dtype));
  part.Output(stream, residual);
  part.program.rounds_values = rounds;
  return part.program;
}

TEST(ElementProgramTest, ResidualNormIntoTheResidual) {
  OnEveryTarget([](const std::string& target) {
    std::mt19937_64 random(10);
    for (const ValueDtype dtype : {ValueDtype::kF32, ValueDtype::kF16, ValueDtype::kBf16}) {
      for (const uint64_t columns : {7u, 8u, 1024u, 1025u, 8192u}) {
        for (const uint64_t rows : {0u, 1u, 3u}) {
          const sdk::Program program = ResidualNorm(dtype, rows, columns, columns % 2 == 0);
          const auto inputs = RandomInputs(program, random, false);
          const auto expected = NaivePart(program, inputs);
          ASSERT_EQ(Difference(RunPart(program, inputs, 1), expected), "")
              << target << " columns " << columns << " rows " << rows;
          ASSERT_EQ(Difference(RunPart(program, inputs, 1, 2), expected), "") << "by two rows";
        }
      }
    }
  });
}

TEST(ElementProgramTest, AnInputThatALaterPassReadsIsOverwrittenOnlyThen) {
  std::mt19937_64 random(11);
  for (const uint64_t columns : {9u, 1024u, 2500u}) {
    PartBuilder part(3);
    const int x = part.Input(ValueDtype::kF32, columns);
    const int y = part.Input(ValueDtype::kF32, columns);
    const int sum = part.Node(COTUNE_NODE_ROW_SUM, {x});
    const int twice = part.Node(COTUNE_NODE_ADD, {x, x});
    part.Output(twice, x);                                 // known in the first pass
    part.Output(part.Node(COTUNE_NODE_ADD, {x, sum}), y);  // reads x in the second
    part.Output(y);                                        // as it was before
    const auto inputs = RandomInputs(part.program, random, false);
    EXPECT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "");
  }
}

TEST(ElementProgramTest, InputsChangePlaces) {
  std::mt19937_64 random(12);
  for (const uint32_t rows_kind : {COTUNE_ROWS_ALL, COTUNE_ROWS_ONE}) {
    for (const uint64_t columns : {1u, 1500u}) {
      PartBuilder part(4);
      const int x = part.Input(ValueDtype::kBf16, columns, rows_kind);
      const int y = part.Input(ValueDtype::kBf16, columns, rows_kind);
      const int z = part.Input(ValueDtype::kBf16, columns);
      part.Output(y, x);
      part.Output(x, y);
      part.Output(part.Node(COTUNE_NODE_SUB, {z, x}));
      const auto inputs = RandomInputs(part.program, random);
      EXPECT_EQ(Difference(RunPart(part.program, inputs), NaivePart(part.program, inputs)), "");
      EXPECT_EQ(Difference(RunPart(part.program, inputs, 0, 1), NaivePart(part.program, inputs)),
                "");
    }
  }
}

TEST(ElementProgramTest, ValuesAreRoundedAtEachNodeOnlyWhereTheProgramSaysSo) {
  for (const bool rounds : {false, true}) {
    PartBuilder part(1);
    const int x = part.Input(ValueDtype::kBf16, 1);
    const int one = part.Node(COTUNE_NODE_ADD, {x, PartOperand::Literal(1)});
    part.Output(part.Node(COTUNE_NODE_ADD, {one, PartOperand::Literal(1)}));
    part.program.rounds_values = rounds;
    PartArray input{ValueDtype::kBf16, std::vector<std::byte>(2)};
    SetPartElement(input, 0, 256);
    EXPECT_EQ(PartElement(RunPart(part.program, {input})[0], 0), rounds ? 256 : 258);
  }
}

TEST(ElementProgramTest, OperationsThatDoNotFitTheirDtypeAreRefused) {
  PartBuilder part(1);
  part.Output(part.Node(COTUNE_NODE_EXP, {part.Input(ValueDtype::kI32, 8)}));
  const auto refused = ElementProgram::Prepare(part.program);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_EQ(refused.error().message,
            "the host backend has no operation 15 of i32 values; cast the operands, or leave this "
            "operation to the caller");
  PartBuilder with_collective(1);
  with_collective.Output(
      with_collective.Node(COTUNE_NODE_COLLECTIVE, {with_collective.Input(ValueDtype::kF32, 8)}));
  EXPECT_EQ(ElementProgram::Prepare(with_collective.program).error().status,
            COTUNE_INVALID_ARGUMENT);
}

TEST(ElementProgramTest, RandomProgramsEqualTheNaiveInterpreter) {
  OnEveryTarget([](const std::string& target) {
    for (uint64_t seed = 0; seed < 600; ++seed) {
      sdk::RandomPart maker(seed);
      const sdk::Program program = maker.Make();
      const auto inputs = RandomInputs(program, maker.random());
      const auto expected = NaivePart(program, inputs);
      ASSERT_EQ(Difference(RunPart(program, inputs, seed % 3), expected), "")
          << target << " seed " << seed;
      ASSERT_EQ(Difference(RunPart(program, inputs, 0, 1 + seed % 2), expected), "")
          << target << " seed " << seed << " by rows";
    }
  });
}

}  // namespace
}  // namespace cotune::host
