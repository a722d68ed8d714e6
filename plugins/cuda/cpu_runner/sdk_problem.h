// The words of a variant and of a problem as the SDK, and so the list of choices, has them.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_SDK_PROBLEM_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_SDK_PROBLEM_H_

#include <string_view>

#include "plugins/cuda/cpu_runner/exact_data.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda::cpu {

std::string_view WordOf(sdk::Collective collective);
std::string_view WordOf(sdk::ElementType type);
std::string_view WordOf(sdk::Reduction reduction);

// The problem not in place, on buffers that are registered or not.
sdk::Problem SdkProblem(const Problem& problem, bool is_symmetric);
// The same in the words of variants.
Problem ProblemInWords(const sdk::Problem& problem);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_SDK_PROBLEM_H_
