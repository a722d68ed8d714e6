// Element types and reductions of the ABI, as closed enumerations.
#ifndef COTUNE_PLUGINS_SDK_ELEMENT_TYPE_H_
#define COTUNE_PLUGINS_SDK_ELEMENT_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::sdk {

enum class ElementType : uint8_t { kF32, kF64, kF16, kBf16, kI32, kI64, kU8 };

inline constexpr ElementType kElementTypes[] = {
    ElementType::kF32, ElementType::kF64, ElementType::kF16, ElementType::kBf16,
    ElementType::kI32, ElementType::kI64, ElementType::kU8};

enum class Reduction : uint8_t { kSum, kProduct, kMin, kMax, kAverage };

inline constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProduct, Reduction::kMin,
                                            Reduction::kMax, Reduction::kAverage};

// Bytes of one element in the caller's buffers.
constexpr size_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kF64:
    case ElementType::kI64:
      return 8;
    case ElementType::kF32:
    case ElementType::kI32:
      return 4;
    case ElementType::kF16:
    case ElementType::kBf16:
      return 2;
    case ElementType::kU8:
      return 1;
  }
  return 0;
}

// True for the types that are summed in f32 and rounded once at the end.
constexpr bool IsNarrowFloat(ElementType type) {
  return type == ElementType::kF16 || type == ElementType::kBf16;
}

constexpr bool IsFloat(ElementType type) {
  return IsNarrowFloat(type) || type == ElementType::kF32 || type == ElementType::kF64;
}

// Bytes of one partial result: f32 for the 16-bit floats, otherwise the element itself.
constexpr size_t PartialBytes(ElementType type) {
  return IsNarrowFloat(type) ? 4 : ElementBytes(type);
}

// The type that the ABI's code and width name; empty when it is none of these.
constexpr std::optional<ElementType> ElementTypeFromAbi(cotune_dtype_t dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  switch (dtype.code) {
    case COTUNE_DTYPE_FLOAT:
      if (dtype.bits == 64) return ElementType::kF64;
      if (dtype.bits == 32) return ElementType::kF32;
      if (dtype.bits == 16) return ElementType::kF16;
      return std::nullopt;
    case COTUNE_DTYPE_BFLOAT:
      if (dtype.bits == 16) return ElementType::kBf16;
      return std::nullopt;
    case COTUNE_DTYPE_INT:
      if (dtype.bits == 64) return ElementType::kI64;
      if (dtype.bits == 32) return ElementType::kI32;
      return std::nullopt;
    case COTUNE_DTYPE_UINT:
      if (dtype.bits == 8) return ElementType::kU8;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// The inverse of ElementTypeFromAbi.
constexpr cotune_dtype_t ElementTypeToAbi(ElementType type) {
  const auto bits = static_cast<uint8_t>(ElementBytes(type) * 8);
  switch (type) {
    case ElementType::kF64:
    case ElementType::kF32:
    case ElementType::kF16:
      return {COTUNE_DTYPE_FLOAT, bits, 1};
    case ElementType::kBf16:
      return {COTUNE_DTYPE_BFLOAT, bits, 1};
    case ElementType::kI64:
    case ElementType::kI32:
      return {COTUNE_DTYPE_INT, bits, 1};
    case ElementType::kU8:
      return {COTUNE_DTYPE_UINT, bits, 1};
  }
  return {COTUNE_DTYPE_UINT, 8, 1};
}

// The reduction that an ABI value names; empty for COTUNE_REDUCTION_NONE and unknown values.
constexpr std::optional<Reduction> ReductionFromAbi(uint32_t reduction) {
  if (reduction < COTUNE_SUM || reduction > COTUNE_AVERAGE) return std::nullopt;
  return static_cast<Reduction>(reduction - COTUNE_SUM);
}

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_ELEMENT_TYPE_H_
