// The right result of a collective, by plain loops over all ranks' inputs. Shares nothing with the
// kernels, conversions of 16-bit floats included.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_NAIVE_COLLECTIVE_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_NAIVE_COLLECTIVE_H_

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

// Returns what `rank` receives when rank r sends inputs[r]: in rank order, 16-bit floats in f32
// with one rounding at the end.
Bytes ExpectedOutput(const Problem& problem, int rank, const std::vector<Bytes>& inputs);

// The value of one element, for types that are floats.
double FloatAt(std::string_view type, const Bytes& bytes, uint64_t element);

// Data of all ranks in which every pair of eight bytes side by side occurs that "escape" kernels
// have to look at: what would look empty, what looks like the escape, others like them, others.
std::vector<Bytes> EscapedInputs(const Problem& p);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_NAIVE_COLLECTIVE_H_
