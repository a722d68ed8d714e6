#include "plugins/testing/exact_data.h"

#include <cstring>
#include <type_traits>

#include "core/problem/expected_collective.h"
#include "plugins/sdk/element_type.h"
#include "plugins/sdk/float16.h"

namespace cotune::backend_test {
namespace {

using sdk::Bf16FromF32;
using sdk::F16FromF32;

template <typename T>
struct Plain {
  using Sum = T;
  static void Write(T value, std::byte* to) { std::memcpy(to, &value, sizeof(value)); }
};

template <auto kWrite>
struct Half {
  using Sum = float;
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
      return body(Half<F16FromF32>());
    case ElementType::kBf16:
      return body(Half<Bf16FromF32>());
    case ElementType::kI32:
      return body(Plain<int32_t>());
    case ElementType::kI64:
      return body(Plain<int64_t>());
    case ElementType::kU8:
      break;
  }
  return body(Plain<uint8_t>());
}

// The words of the evaluator, which have the same order.
static_assert(static_cast<int>(cotune::Collective::kBroadcast) ==
              static_cast<int>(Collective::kBroadcast) + 1);
static_assert(static_cast<int>(cotune::Reduction::kAverage) ==
              static_cast<int>(Reduction::kAverage) + 1);
static_assert(static_cast<int>(Dtype::kU8) == static_cast<int>(ElementType::kU8) + 1);
cotune::Problem EvaluatedProblem(const Problem& problem) {
  cotune::Problem result;
  result.cls.collective = static_cast<cotune::Collective>(static_cast<int>(problem.collective) + 1);
  if (Reduces(problem)) {
    result.cls.reduction = static_cast<cotune::Reduction>(static_cast<int>(problem.reduction) + 1);
  }
  result.cls.dtype = static_cast<Dtype>(static_cast<int>(problem.type) + 1);
  result.cls.world_size = result.cls.ranks_per_node = problem.world_size;
  result.cls.root = problem.root;
  result.count = problem.count;
  return result;
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
  return ExpectedBytes(EvaluatedProblem(problem), rank, inputs).value();
}

EvaluatedValue ExpectedSums(const Problem& problem, int rank,
                            const std::vector<std::vector<std::byte>>& inputs) {
  return ExpectedValue(EvaluatedProblem(problem), rank, inputs).value();
}

}  // namespace cotune::backend_test
