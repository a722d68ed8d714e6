#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/host/joined_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "plugins/host/narrow_floats-inl.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {
namespace {

using sdk::ValueDtype;

// The second of two joined operations.
struct NoSecond {
  static constexpr bool kReadsThird = false;
};
struct ThenRelu {
  static constexpr bool kReadsThird = false;
};
struct ThenMul {
  static constexpr bool kReadsThird = true;
};

// Form of the results that an instruction writes.
enum class Written : uint8_t { kLanes, kElements, kRoundedLanes };

template <class Narrow, bool kIsNarrow>
HWY_INLINE hn::Vec<F32> LoadOperand(const ElementArguments& a, int operand, size_t i) {
  if constexpr (kIsNarrow) {
    return Narrow::Load(static_cast<const typename Narrow::Element*>(a.from[operand]) + i);
  } else {
    return hn::LoadU(F32(), static_cast<const float*>(a.from[operand]) + i * a.step[operand]);
  }
}

template <class Narrow, class First, class Second, uint32_t kNarrowOperands>
HWY_INLINE hn::Vec<F32> Compute(const ElementArguments& a, size_t i) {
  const F32 d;
  const auto x = LoadOperand<Narrow, (kNarrowOperands & 1) != 0>(a, 0, i);
  const auto y = LoadOperand<Narrow, (kNarrowOperands & 2) != 0>(a, 1, i);
  auto result = First()(d, x, y);
  if constexpr (std::is_same_v<Second, ThenRelu>) result = Relu()(d, result);
  if constexpr (Second::kReadsThird) {
    result = Mul()(d, result, LoadOperand<Narrow, (kNarrowOperands & 4) != 0>(a, 2, i));
  }
  return result;
}

template <class Narrow, class First, class Second, uint32_t kNarrowOperands, Written kWritten>
void Joined(const ElementArguments& arguments) {
  const ElementArguments a = arguments;  // in registers, which no store can change
  const size_t lanes = hn::Lanes(F32());
  if constexpr (kWritten == Written::kElements) {
    static_assert(kWholeElements % (2 * HWY_MAX_BYTES / sizeof(float)) == 0);
    auto* to = static_cast<typename Narrow::Element*>(a.to);
    for (size_t i = 0; i < a.count; i += 2 * lanes) {
      const auto first = Compute<Narrow, First, Second, kNarrowOperands>(a, i);
      const auto second = Compute<Narrow, First, Second, kNarrowOperands>(a, i + lanes);
      Narrow::StoreTwo(first, second, to + i);
    }
  } else {
    auto* to = static_cast<float*>(a.to);
    for (size_t i = 0; i < a.count; i += lanes) {
      auto result = Compute<Narrow, First, Second, kNarrowOperands>(a, i);
      if constexpr (kWritten == Written::kRoundedLanes) {
        static_assert(std::is_same_v<Second, NoSecond>);
        constexpr bool kAreAllNarrow = kNarrowOperands == 3;
        result = kAreAllNarrow ? Narrow::RoundedResult(result) : Narrow::Rounded(result);
      }
      hn::StoreU(result, F32(), to + i);
    }
  }
}

template <class Narrow, class First, class Second, uint32_t kNarrowOperands>
ElementKernel ChooseStore(Written written) {
  switch (written) {
    case Written::kLanes:
      return Joined<Narrow, First, Second, kNarrowOperands, Written::kLanes>;
    case Written::kElements:
      return Joined<Narrow, First, Second, kNarrowOperands, Written::kElements>;
    case Written::kRoundedLanes:
      break;
  }
  // A residual that a norm reads is one operation; more variants would only lengthen the build.
  if constexpr (std::is_same_v<Second, NoSecond>) {
    return Joined<Narrow, First, Second, kNarrowOperands, Written::kRoundedLanes>;
  }
  return nullptr;
}

template <class Narrow, class First, class Second>
ElementKernel ChooseOperands(uint32_t narrow_operands, Written written) {
  switch (narrow_operands) {
    case 0:
      return ChooseStore<Narrow, First, Second, 0>(written);
    case 1:
      return ChooseStore<Narrow, First, Second, 1>(written);
    case 2:
      return ChooseStore<Narrow, First, Second, 2>(written);
    case 3:
      return ChooseStore<Narrow, First, Second, 3>(written);
    default:
      break;
  }
  if constexpr (Second::kReadsThird) {
    // The third operand is read in its narrow type where the others are lanes: a row's scale and
    // the weights of a norm.
    if (narrow_operands == 4) return ChooseStore<Narrow, First, Second, 4>(written);
    if (narrow_operands == 5) return ChooseStore<Narrow, First, Second, 5>(written);
  }
  return nullptr;
}

template <class Narrow, class First>
ElementKernel ChooseSecond(const JoinedOperations& operations, uint32_t narrow_operands,
                           Written written) {
  switch (operations.second) {
    case 0:
      return ChooseOperands<Narrow, First, NoSecond>(narrow_operands, written);
    case COTUNE_NODE_RELU:
      return ChooseOperands<Narrow, First, ThenRelu>(narrow_operands, written);
    case COTUNE_NODE_MUL:
      return ChooseOperands<Narrow, First, ThenMul>(narrow_operands, written);
    default:
      return nullptr;
  }
}

template <class Narrow>
ElementKernel ChooseFirst(const JoinedOperations& operations, uint32_t narrow_operands,
                          Written written) {
  switch (operations.first) {
    case COTUNE_NODE_ADD:
      return ChooseSecond<Narrow, Add>(operations, narrow_operands, written);
    case COTUNE_NODE_SUB:
      return ChooseSecond<Narrow, Sub>(operations, narrow_operands, written);
    case COTUNE_NODE_MUL:
      return ChooseSecond<Narrow, Mul>(operations, narrow_operands, written);
    default:
      return nullptr;
  }
}

ElementKernel FindJoined(const JoinedOperations& operations) {
  // Rounding to one dtype and then to another is not rounding to the second.
  const bool rounds_twice = operations.to != ValueDtype::kF32 &&
                            operations.rounded != ValueDtype::kF32 &&
                            operations.to != operations.rounded;
  if (rounds_twice) return nullptr;
  ValueDtype narrow = operations.to != ValueDtype::kF32 ? operations.to : operations.rounded;
  uint32_t narrow_operands = 0;
  for (uint32_t o = 0; o < operations.from.size(); ++o) {
    if (operations.from[o] == ValueDtype::kF32) continue;
    if (narrow != ValueDtype::kF32 && narrow != operations.from[o]) return nullptr;
    narrow = operations.from[o];
    narrow_operands |= 1u << o;
  }
  const Written written = operations.to != ValueDtype::kF32        ? Written::kElements
                          : operations.rounded != ValueDtype::kF32 ? Written::kRoundedLanes
                                                                   : Written::kLanes;
  if (narrow == ValueDtype::kF16) {
    return ChooseFirst<F16>(operations, narrow_operands, written);
  }
  if (narrow == ValueDtype::kF32 || narrow == ValueDtype::kBf16) {
    return ChooseFirst<Bf16>(operations, narrow_operands, written);
  }
  return nullptr;
}

}  // namespace
}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::host {

HWY_EXPORT(FindJoined);

ElementKernel FindJoinedKernel(const JoinedOperations& operations) {
  return HWY_DYNAMIC_DISPATCH(FindJoined)(operations);
}

}  // namespace cotune::host
#endif  // HWY_ONCE
