#include "core/problem/evaluated_value.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/float16.h"
#include "core/base/float8.h"
#include "core/problem/bounded.h"

namespace cotune {
namespace {

// Calls function(element, read(bits of the element)) for each element.
template <typename Bits, typename Read, typename Function>
void ForEach(std::span<const std::byte> bytes, const Read& read, const Function& function) {
  for (size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    function(i, read(bits));
  }
}

template <typename Function>
void ForEachFloat(Dtype dtype, std::span<const std::byte> bytes, const Function& function) {
  switch (dtype) {
    case Dtype::kF32:
      return ForEach<float>(
          bytes, [](float value) { return double{value}; }, function);
    case Dtype::kF64:
      return ForEach<double>(
          bytes, [](double value) { return value; }, function);
    case Dtype::kF16:
      return ForEach<uint16_t>(bytes, F32FromF16, function);
    case Dtype::kBf16:
      return ForEach<uint16_t>(bytes, F32FromBf16, function);
    case Dtype::kF8E4M3:
      return ForEach<uint8_t>(bytes, F32FromF8E4M3, function);
    case Dtype::kF8E5M2:
      return ForEach<uint8_t>(bytes, F32FromF8E5M2, function);
    default:
      COTUNE_CHECK(false, "this is a float");
  }
}

template <typename Function>
void ForEachInteger(Dtype dtype, std::span<const std::byte> bytes, const Function& function) {
  const auto widened = [](auto value) { return static_cast<int64_t>(value); };
  switch (dtype) {
    case Dtype::kI8:
      return ForEach<int8_t>(bytes, widened, function);
    case Dtype::kU8:
      return ForEach<uint8_t>(bytes, widened, function);
    case Dtype::kI32:
      return ForEach<int32_t>(bytes, widened, function);
    case Dtype::kI64:
      return ForEach<int64_t>(bytes, widened, function);
    default:
      COTUNE_CHECK(false, "this is an integer");
  }
}

template <typename Bits>
void Store(std::byte* to, Bits bits) {
  std::memcpy(to, &bits, sizeof(Bits));
}

// `value` is one that the dtype has, or NaN for what it has not.
void StoreFloat(Dtype dtype, double value, std::byte* to) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case Dtype::kF32:
      return Store(to, narrow);
    case Dtype::kF64:
      return Store(to, value);
    case Dtype::kF16:
      return Store(to, F16FromF32(narrow));
    case Dtype::kBf16:
      return Store(to, Bf16FromF32(narrow));
    case Dtype::kF8E4M3:
      return Store(to, F8E4M3FromF32(narrow));
    case Dtype::kF8E5M2:
      return Store(to, F8E5M2FromF32(narrow));
    default:
      COTUNE_CHECK(false, "this is a float");
  }
}

// Every dtype of integers has the low bytes of the value, lowest first.
static_assert(std::endian::native == std::endian::little);
void StoreInteger(Dtype dtype, int64_t value, std::byte* to) {
  std::memcpy(to, &value, SizeBytes(dtype));
}

bool IsRight(const FloatFormat& format, bool has_infinity, Bounded expected, double seen) {
  if (expected.bound == kInfinity) {
    return !std::isinf(expected.value) || std::isinf(seen);
  }
  const double value = expected.value;
  // f64 overflows only to what is infinite already.
  const bool may_overflow =
      std::isinf(value) || std::fabs(value) + expected.bound >= format.overflow;
  if (std::isnan(value)) return std::isnan(seen);
  if (std::isnan(seen)) return may_overflow && !has_infinity;
  if (std::isinf(seen)) return may_overflow && std::signbit(seen) == std::signbit(value);
  return std::fabs(seen - value) <= expected.bound;
}

}  // namespace

EvaluatedValue Zeros(const ValueType& type, uint64_t rows) {
  EvaluatedValue value;
  value.type = type;
  value.rows = rows;
  if (IsFloat(type.dtype)) {
    value.floats.resize(value.elements());
  } else {
    value.integers.resize(value.elements());
  }
  return value;
}

EvaluatedValue Decode(const ValueType& type, uint64_t rows, std::span<const std::byte> bytes) {
  EvaluatedValue value = Zeros(type, rows);
  COTUNE_CHECK(bytes.size() == value.elements() * SizeBytes(type.dtype),
               "the bytes are those of the value");
  if (IsFloat(type.dtype)) {
    ForEachFloat(type.dtype, bytes, [&](size_t i, double each) { value.floats[i].value = each; });
  } else {
    ForEachInteger(type.dtype, bytes, [&](size_t i, int64_t each) { value.integers[i] = each; });
  }
  return value;
}

std::vector<std::byte> Encode(const EvaluatedValue& value) {
  const Dtype dtype = value.type.dtype;
  const uint64_t size = SizeBytes(dtype);
  std::vector<std::byte> bytes(value.elements() * size);
  std::byte* to = bytes.data();
  for (const Bounded& each : value.floats) {
    StoreFloat(dtype, RoundTo(dtype, each.value), to);
    to += size;
  }
  for (const int64_t each : value.integers) {
    StoreInteger(dtype, each, to);
    to += size;
  }
  return bytes;
}

uint64_t CountWrong(const EvaluatedValue& expected, std::span<const std::byte> seen) {
  const Dtype dtype = expected.type.dtype;
  if (seen.size() != expected.elements() * SizeBytes(dtype)) return expected.elements();
  uint64_t wrong = 0;
  if (IsFloat(dtype)) {
    const FloatFormat& format = FormatOf(dtype);
    const bool has_infinity = dtype != Dtype::kF8E4M3;
    ForEachFloat(dtype, seen, [&](size_t i, double each) {
      if (!IsRight(format, has_infinity, expected.floats[i], each)) ++wrong;
    });
  } else {
    ForEachInteger(dtype, seen, [&](size_t i, int64_t each) {
      const uint64_t bound = expected.integer_bounds.empty() ? 0 : expected.integer_bounds[i];
      if (Distance(expected.integers[i], each) > bound) ++wrong;
    });
  }
  return wrong;
}

}  // namespace cotune
