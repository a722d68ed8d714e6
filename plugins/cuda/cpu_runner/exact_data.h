// The data that kernels are tested with, and the right results of a collective by the reference
// evaluator, which shares nothing with the kernels.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_EXACT_DATA_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_EXACT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cotune::cuda::cpu {

using Bytes = std::vector<unsigned char>;

// In the words of KernelVariant.
struct Problem {
  std::string_view collective;
  std::string_view type;
  std::string_view reduction;
  uint64_t count = 0;
  int world_size = 2;
  int root = 0;
};

size_t ElementBytes(std::string_view type);
uint64_t SendElements(const Problem& problem);
uint64_t ReceiveElements(const Problem& problem);

// The send buffer of a rank: small whole numbers that differ by rank, element and `salt`, so that
// every sum and product is exact in every type.
Bytes ExactInput(const Problem& problem, int rank, unsigned int salt);

// Returns what `rank` receives when rank r sends inputs[r], rounded once. For data whose sums are
// exact, integers and data that is only moved, nothing else is right.
Bytes ExpectedOutput(const Problem& problem, int rank, const std::vector<Bytes>& inputs);

// The same for floats, before it is rounded to the type.
std::vector<double> UnroundedOutput(const Problem& problem, int rank,
                                    const std::vector<Bytes>& inputs);

// The elements of a type that is a float, and the nearest number that it has.
std::vector<double> FloatsOf(std::string_view type, const Bytes& bytes);
double Rounded(std::string_view type, double value);

// Data of all ranks in which every pair of eight bytes side by side occurs that "escape" kernels
// have to look at: what would look empty, what looks like the escape, others like them, others.
std::vector<Bytes> EscapedInputs(const Problem& p);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_EXACT_DATA_H_
