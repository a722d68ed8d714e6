#include "plugins/cuda/cpu_runner/sdk_problem.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

namespace cotune::cuda::cpu {
namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 5> kCollectives = {
    "ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST"};
constexpr std::array<std::string_view, 7> kTypes = {"F32", "F64", "F16", "BF16",
                                                    "I32", "I64", "U8"};
constexpr std::array<std::string_view, 5> kReductions = {"SUM", "PRODUCT", "MIN", "MAX", "AVERAGE"};

template <typename Value, size_t kCount>
Value ValueOf(std::string_view word, const std::array<std::string_view, kCount>& words) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) std::abort();
  return static_cast<Value>(found - words.begin());
}

}  // namespace

std::string_view WordOf(sdk::Collective collective) {
  return kCollectives[static_cast<size_t>(collective)];
}
std::string_view WordOf(sdk::ElementType type) { return kTypes[static_cast<size_t>(type)]; }
std::string_view WordOf(sdk::Reduction reduction) {
  return kReductions[static_cast<size_t>(reduction)];
}

sdk::Problem SdkProblem(const Problem& p, bool is_symmetric) {
  sdk::Problem problem;
  problem.collective = ValueOf<sdk::Collective>(p.collective, kCollectives);
  problem.type = ValueOf<sdk::ElementType>(p.type, kTypes);
  if (!p.reduction.empty()) problem.reduction = ValueOf<sdk::Reduction>(p.reduction, kReductions);
  problem.count = p.count;
  problem.world_size = p.world_size;
  problem.root = p.root;
  problem.is_symmetric = is_symmetric;
  return problem;
}

Problem ProblemInWords(const sdk::Problem& problem) {
  return {.collective = WordOf(problem.collective),
          .type = WordOf(problem.type),
          .reduction = sdk::Reduces(problem) ? WordOf(problem.reduction) : "",
          .count = problem.count,
          .world_size = problem.world_size,
          .root = problem.root};
}

}  // namespace cotune::cuda::cpu
