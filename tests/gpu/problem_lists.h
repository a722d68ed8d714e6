// Lists of problems as flags name them.
#ifndef COTUNE_TESTS_GPU_PROBLEM_LISTS_H_
#define COTUNE_TESTS_GPU_PROBLEM_LISTS_H_

#include <vector>

#include "tests/gpu/rank.h"

namespace cotune::gputest {

// --collectives, --dtypes ("all": every one) and --reductions ("all"; only where they reduce).
Result<std::vector<ProblemClass>> ClassesOf(Job& job, const Flags& flags);
// --counts.
std::vector<uint64_t> CountsOf(const Flags& flags, const std::string& fallback);
// --patterns; by default exact and random for a class that reduces, else bits.
Result<std::vector<Pattern>> PatternsOf(const Flags& flags, const ProblemClass& cls);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_PROBLEM_LISTS_H_
