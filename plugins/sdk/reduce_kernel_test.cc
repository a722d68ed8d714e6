#include "plugins/sdk/reduce_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hwy/targets.h"
#include "plugins/sdk/float16.h"

namespace cotune::sdk {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
T ReadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// One element as a number of the type it is summed in.
template <typename Sum>
Sum ReadElement(const std::byte* from, ElementType type, bool partial) {
  if constexpr (std::is_same_v<Sum, float>) {
    if (type == ElementType::kF16 && !partial) return F32FromF16(ReadAs<uint16_t>(from));
    if (type == ElementType::kBf16 && !partial) return F32FromBf16(ReadAs<uint16_t>(from));
  }
  return ReadAs<Sum>(from);
}

template <typename Sum>
Sum CombineScalar(Sum a, Sum b, Reduction reduction) {
  if constexpr (std::is_floating_point_v<Sum>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Sum>::quiet_NaN();
    if (reduction == Reduction::kProduct) return a * b;
    if (reduction == Reduction::kSum || reduction == Reduction::kAverage) return a + b;
  } else {
    using Wide = std::conditional_t<sizeof(Sum) == 8, uint64_t, uint32_t>;
    const auto x = static_cast<Wide>(a);
    const auto y = static_cast<Wide>(b);
    if (reduction == Reduction::kProduct) return static_cast<Sum>(x * y);
    if (reduction == Reduction::kSum || reduction == Reduction::kAverage)
      return static_cast<Sum>(x + y);
  }
  return (reduction == Reduction::kMin) == (b < a) ? b : a;
}

struct Shape {
  ElementType type = ElementType::kF32;
  Reduction reduction = Reduction::kSum;
  size_t count = 0;
  uint32_t sources = 1;
  uint64_t partial_mask = 0;
  bool destination_partial = false;
  int32_t divisor = 1;
  size_t misalignment = 0;
};

size_t Width(const Shape& shape, bool partial) {
  return partial ? PartialBytes(shape.type) : ElementBytes(shape.type);
}

// Numbers of every size, and now and then the special ones.
template <typename Sum>
void Fill(Bytes& bytes, const Shape& shape, bool partial, std::mt19937_64& random) {
  const size_t width = Width(shape, partial);
  for (size_t i = 0; i < shape.count; ++i) {
    uint64_t bits = random();
    if constexpr (std::is_floating_point_v<Sum>) {
      Sum value = std::ldexp(static_cast<Sum>(static_cast<int64_t>(bits % 20001) - 10000),
                             static_cast<int>(bits >> 40) % 24 - 16);
      if (bits % 97 == 0) value = std::numeric_limits<Sum>::quiet_NaN();
      if (bits % 101 == 0) value = std::numeric_limits<Sum>::infinity();
      if (width == 2) {
        const auto narrow = static_cast<float>(value);
        bits = shape.type == ElementType::kF16 ? F16FromF32(narrow) : Bf16FromF32(narrow);
      } else {
        std::memcpy(&bits, &value, sizeof(value));
      }
    }
    std::memcpy(bytes.data() + shape.misalignment + i * width, &bits, width);
  }
}

// Empty when destination element `i` is `expected` in its stored form; any NaN equals any other.
template <typename Sum>
std::string CompareElement(const std::byte* at, const Shape& shape, Sum expected) {
  if constexpr (std::is_floating_point_v<Sum>) {
    const Sum got = ReadElement<Sum>(at, shape.type, shape.destination_partial);
    if (std::isnan(expected) && std::isnan(got)) return "";
    if (std::isnan(expected) != std::isnan(got)) return "is not a NaN, or is one";
  }
  uint64_t bits = 0;
  uint64_t expected_bits = 0;
  const size_t width = Width(shape, shape.destination_partial);
  std::memcpy(&bits, at, width);
  if constexpr (std::is_same_v<Sum, float>) {
    if (width == 2) {
      expected_bits =
          shape.type == ElementType::kF16 ? F16FromF32(expected) : Bf16FromF32(expected);
    } else {
      std::memcpy(&expected_bits, &expected, width);
    }
  } else {
    std::memcpy(&expected_bits, &expected, width);
  }
  return bits == expected_bits
             ? ""
             : "is " + std::to_string(bits) + ", not " + std::to_string(expected_bits);
}

template <typename Sum>
std::string RunShape(const Shape& shape, std::mt19937_64& random) {
  std::vector<Bytes> sources;
  ReduceArguments arguments;
  for (uint32_t s = 0; s < shape.sources; ++s) {
    const bool partial = ((shape.partial_mask >> s) & 1) != 0;
    sources.emplace_back(shape.misalignment + shape.count * Width(shape, partial) + 1);
    Fill<Sum>(sources.back(), shape, partial, random);
  }
  for (uint32_t s = 0; s < shape.sources; ++s) {
    arguments.sources[s] = sources[s].data() + shape.misalignment;
  }
  const size_t width = Width(shape, shape.destination_partial);
  constexpr std::byte kPoison{0x5a};
  Bytes first(shape.misalignment + shape.count * width + 64, kPoison);
  Bytes second = first;
  arguments.destination = first.data() + shape.misalignment;
  arguments.second_destination = second.data() + shape.misalignment;
  arguments.destination_partial = arguments.second_destination_partial = shape.destination_partial;
  arguments.source_count = shape.sources;
  arguments.source_partial_mask = shape.partial_mask;
  arguments.count = shape.count;
  arguments.divisor = shape.divisor;
  FindReduceKernel(shape.type, shape.reduction)(arguments);
  if (first != second) return "the second destination differs";
  for (size_t i = shape.misalignment + shape.count * width; i < first.size(); ++i) {
    if (first[i] != kPoison) return "wrote beyond the end";
  }
  for (size_t i = 0; i < shape.count; ++i) {
    Sum sum{};
    for (uint32_t s = 0; s < shape.sources; ++s) {
      const bool partial = ((shape.partial_mask >> s) & 1) != 0;
      const auto* at =
          static_cast<const std::byte*>(arguments.sources[s]) + i * Width(shape, partial);
      const Sum value = ReadElement<Sum>(at, shape.type, partial);
      sum = s == 0 ? value : CombineScalar(sum, value, shape.reduction);
    }
    if (shape.divisor != 1) sum = static_cast<Sum>(sum / static_cast<Sum>(shape.divisor));
    const auto* at = static_cast<const std::byte*>(arguments.destination) + i * width;
    if (std::string wrong = CompareElement<Sum>(at, shape, sum); !wrong.empty()) {
      return "element " + std::to_string(i) + " " + wrong;
    }
  }
  return "";
}

std::string RunShapeOfType(const Shape& shape, std::mt19937_64& random) {
  switch (shape.type) {
    case ElementType::kF64:
      return RunShape<double>(shape, random);
    case ElementType::kI32:
      return RunShape<int32_t>(shape, random);
    case ElementType::kI64:
      return RunShape<int64_t>(shape, random);
    case ElementType::kU8:
      return RunShape<uint8_t>(shape, random);
    default:
      return RunShape<float>(shape, random);
  }
}

std::vector<Shape> Shapes(ElementType type, Reduction reduction) {
  std::vector<Shape> shapes;
  for (const size_t count : {1u, 3u, 15u, 16u, 17u, 64u, 127u, 257u, 1000u}) {
    for (const uint32_t sources : {1u, 2u, 3u, 8u, 64u}) {
      Shape shape{.type = type, .reduction = reduction, .count = count, .sources = sources};
      shape.misalignment = (count + sources) % 4;
      if (reduction == Reduction::kAverage) shape.divisor = static_cast<int32_t>(sources);
      shapes.push_back(shape);
      if (!IsNarrowFloat(type)) continue;
      shape.partial_mask =
          0x5555555555555555u & (sources == 64 ? ~uint64_t{0} : (uint64_t{1} << sources) - 1);
      shapes.push_back(shape);
      shape.destination_partial = true;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

// Every vector unit that this processor has and the library was compiled for.
TEST(ReduceKernelTest, EqualsScalarLoopsOnEveryTarget) {
  int targets = 0;
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    ++targets;
    std::mt19937_64 random(5);
    for (const ElementType type : kElementTypes) {
      for (const Reduction reduction : kReductions) {
        for (const Shape& shape : Shapes(type, reduction)) {
          ASSERT_EQ(RunShapeOfType(shape, random), "")
              << hwy::TargetName(target) << " type " << static_cast<int>(type) << " reduction "
              << static_cast<int>(reduction) << " count " << shape.count << " sources "
              << shape.sources << " partial " << shape.partial_mask;
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(targets, 1);
}

TEST(ReduceKernelTest, DestinationMayBeASource) {
  std::vector<float> a(1000);
  std::vector<float> b(1000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
  }
  ReduceArguments arguments;
  arguments.destination = a.data();
  arguments.sources[0] = b.data();
  arguments.sources[1] = a.data();
  arguments.source_count = 2;
  arguments.count = a.size();
  FindReduceKernel(ElementType::kF32, Reduction::kSum)(arguments);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], static_cast<float>(3 * i));
}

TEST(ReduceKernelTest, SixteenBitSumsAreRoundedOnce) {
  // 256 + 1 + 1 in bf16: rounding after each step would stay at 256, once at the end gives 258.
  const uint16_t values[] = {Bf16FromF32(256), Bf16FromF32(1), Bf16FromF32(1)};
  uint16_t result = 0;
  ReduceArguments arguments;
  arguments.destination = &result;
  arguments.source_count = 3;
  for (int s = 0; s < 3; ++s) arguments.sources[s] = &values[s];
  arguments.count = 1;
  FindReduceKernel(ElementType::kBf16, Reduction::kSum)(arguments);
  EXPECT_EQ(F32FromBf16(result), 258.0f);
}

}  // namespace
}  // namespace cotune::sdk
