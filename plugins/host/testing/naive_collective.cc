#include "plugins/host/testing/naive_collective.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "plugins/host/sdk_names.h"

namespace cotune::host {
namespace {

template <typename T>
struct Plain {
  using Sum = T;
  static T Read(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  static void Write(T value, std::byte* to) { std::memcpy(to, &value, sizeof(value)); }
};

template <auto kRead, auto kWrite>
struct Half {
  using Sum = float;
  static float Read(const std::byte* from) { return kRead(Plain<uint16_t>::Read(from)); }
  static void Write(float value, std::byte* to) { Plain<uint16_t>::Write(kWrite(value), to); }
};

// Calls `body` with the access type of an element type.
template <class Body>
auto WithAccess(ElementType type, Body body) {
  switch (type) {
    case ElementType::kF32:
      return body(Plain<float>());
    case ElementType::kF64:
      return body(Plain<double>());
    case ElementType::kF16:
      return body(Half<F32FromF16, F16FromF32>());
    case ElementType::kBf16:
      return body(Half<F32FromBf16, Bf16FromF32>());
    case ElementType::kI32:
      return body(Plain<int32_t>());
    case ElementType::kI64:
      return body(Plain<int64_t>());
    case ElementType::kU8:
      break;
  }
  return body(Plain<uint8_t>());
}

template <typename T>
T Combine(T a, T b, Reduction reduction) {
  if constexpr (std::is_floating_point_v<T>) {
    if (reduction == Reduction::kMin || reduction == Reduction::kMax) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
    }
  }
  using U = std::conditional_t<std::is_same_v<T, int32_t> || std::is_same_v<T, uint8_t>, uint32_t,
                               std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Reduction::kProduct:
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Reduction::kMin:
      return b < a ? b : a;
    case Reduction::kMax:
      return b > a ? b : a;
  }
  return a;
}

// Element `index` of the send buffers of all ranks, combined.
template <class Access>
void ReduceElement(const Problem& problem, uint64_t index,
                   const std::vector<std::vector<std::byte>>& inputs, std::byte* to) {
  const uint64_t offset = index * ElementBytes(problem.type);
  auto sum = Access::Read(inputs[0].data() + offset);
  for (size_t r = 1; r < inputs.size(); ++r) {
    sum = Combine(sum, Access::Read(inputs[r].data() + offset), problem.reduction);
  }
  if (problem.reduction == Reduction::kAverage) {
    sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(problem.world_size));
  }
  Access::Write(sum, to);
}

// The origin of an element of the output, for collectives that only move data.
struct Origin {
  int rank;
  uint64_t index;
};

Origin OriginOf(const Problem& problem, int rank, uint64_t index) {
  const auto block = problem.count == 0 ? 0 : index / problem.count;
  const auto within = problem.count == 0 ? 0 : index % problem.count;
  switch (problem.collective) {
    case Collective::kAllGather:
      return {static_cast<int>(block), within};
    case Collective::kAllToAll:
      return {static_cast<int>(block), static_cast<uint64_t>(rank) * problem.count + within};
    default:
      return {problem.root, index};
  }
}

}  // namespace

uint64_t SendElements(const Problem& problem) {
  const bool has_blocks = problem.collective == Collective::kReduceScatter ||
                          problem.collective == Collective::kAllToAll;
  return problem.count * (has_blocks ? static_cast<uint64_t>(problem.world_size) : 1);
}

uint64_t ReceiveElements(const Problem& problem) {
  const bool has_blocks =
      problem.collective == Collective::kAllGather || problem.collective == Collective::kAllToAll;
  return problem.count * (has_blocks ? static_cast<uint64_t>(problem.world_size) : 1);
}

std::vector<std::byte> ExactInput(const Problem& problem, int rank) {
  const size_t width = ElementBytes(problem.type);
  std::vector<std::byte> input(SendElements(problem) * width);
  const bool multiplies = Reduces(problem) && problem.reduction == Reduction::kProduct;
  WithAccess(problem.type, [&]<class Access>(Access) {
    using Sum = typename Access::Sum;
    for (uint64_t i = 0; i * width < input.size(); ++i) {
      const uint64_t mixed = i * 7 + i / 61 + static_cast<uint64_t>(rank) * 13;
      const int value = multiplies
                            ? (mixed % 5 == 0 ? 2 : 1)
                            : static_cast<int>(mixed % 31) - (std::is_signed_v<Sum> ? 15 : 0);
      Access::Write(static_cast<Sum>(value), input.data() + i * width);
    }
  });
  return input;
}

std::vector<std::byte> ExpectedOutput(const Problem& problem, int rank,
                                      const std::vector<std::vector<std::byte>>& inputs) {
  const size_t width = ElementBytes(problem.type);
  std::vector<std::byte> output(ReceiveElements(problem) * width);
  const uint64_t first = problem.collective == Collective::kReduceScatter
                             ? static_cast<uint64_t>(rank) * problem.count
                             : 0;
  for (uint64_t i = 0; i < ReceiveElements(problem); ++i) {
    std::byte* to = output.data() + i * width;
    if (Reduces(problem)) {
      WithAccess(problem.type, [&]<class Access>(Access) {
        ReduceElement<Access>(problem, first + i, inputs, to);
      });
    } else {
      const Origin origin = OriginOf(problem, rank, i);
      std::memcpy(to, inputs[static_cast<size_t>(origin.rank)].data() + origin.index * width,
                  width);
    }
  }
  return output;
}

}  // namespace cotune::host
