// From the ABI's problem to one that a backend can rely on, with a reason for every no.
#ifndef COTUNE_PLUGINS_SDK_PROBLEM_H_
#define COTUNE_PLUGINS_SDK_PROBLEM_H_

#include <cstdint>
#include <string_view>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/element_type.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };

// A validated problem. `count` is elements of one block, as in the ABI's table.
struct Problem {
  Collective collective = Collective::kAllReduce;
  Reduction reduction = Reduction::kSum;  // of kAllReduce and kReduceScatter
  ElementType type = ElementType::kF32;
  uint64_t count = 0;
  int world_size = 1;
  int root = 0;
  bool in_place = false;
  bool is_symmetric = false;  // both buffers are registered
  // Of the program that the call is a step of; 0: a call by itself. Only calls that ranks compare
  // depend on it.
  uint64_t program_digest = 0;
};

constexpr bool Reduces(const Problem& problem) {
  return problem.collective == Collective::kAllReduce ||
         problem.collective == Collective::kReduceScatter;
}

// Numerics classes that all backends share (cotune_choice_t.numerics).
inline constexpr char kExactNumerics[] = "exact";
inline constexpr char kRankOrderNumerics[] = "rank_order_f32";

// The class of a choice that combines elements in the order `reducing`. Minima and maxima of floats
// have that class too: of -0 and +0 the processor takes the one on a fixed side.
constexpr std::string_view NumericsOf(const Problem& problem, std::string_view reducing) {
  const bool has_order = problem.world_size > 1 && Reduces(problem) && IsFloat(problem.type);
  return has_order ? reducing : kExactNumerics;
}

// "bytes" of the ABI's table.
uint64_t ProblemBytes(const Problem& problem);

// The limits of what a backend runs at all.
struct ProblemLimits {
  uint32_t memory_kind = COTUNE_MEMORY_HOST;
  int ranks_max = 1;
  bool takes_symmetric = false;
  bool needs_one_host = true;
};

// COTUNE_UNSUPPORTED for what the limits rule out (other memory, unknown types, too many ranks,
// several hosts), COTUNE_INVALID_ARGUMENT for what nobody can (a root that is no rank, bytes that
// do not fit the count). Pure.
Result<Problem> CheckProblem(const cotune_problem_t& problem, const ProblemLimits& limits);

// Whether the caller's buffers fit the problem on this rank: not null, in place exactly where the
// problem says so, and otherwise without overlap. COTUNE_INVALID_ARGUMENT. Pure.
Result<void> CheckBuffers(const Problem& problem, int rank, const void* send, const void* receive);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_PROBLEM_H_
