// One call of a kernel on all ranks, with its buffers and what must come out.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_CALL_FOR_TEST_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_CALL_FOR_TEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/naive_collective_for_test.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {

// A buffer with a guard on both sides, at an offset from a place that is aligned to a pack.
class GuardedBuffer {
 public:
  GuardedBuffer(const Bytes& content, size_t offset_bytes);
  unsigned char* data() { return memory_.data() + begin_; }
  Bytes content() const;
  bool GuardsAreWhole() const;

 private:
  size_t size_;
  size_t begin_;
  Bytes memory_;
};

struct CallShape {
  uint64_t count = 0;
  unsigned int blocks = 2;
  unsigned int threads = 8;
  unsigned int resident_blocks = 1u << 30;
  size_t offset_bytes = 0;
  bool in_place = false;
  unsigned int salt = 1;  // of the data
  int root = 0;
  int chunk_bytes = 1024;
};

class Call {
 public:
  Call(const KernelVariant& variant, const CallShape& shape);
  Call(const KernelVariant& variant, const CallShape& shape, std::vector<Bytes> inputs);

  // From a program.
  void Launch(RanksOnCpu& ranks, int rank);
  // Empty when every rank has what it must have, and nothing beside it was touched.
  std::string Difference() const;

  const Problem& problem() const { return problem_; }
  const std::vector<Bytes>& inputs() const { return inputs_; }
  Bytes Received(int rank) const;

 private:
  const unsigned char* SendOf(size_t rank);
  unsigned char* ReceiveOf(size_t rank);

  const KernelVariant& variant_;
  CallShape shape_;
  Problem problem_;
  std::vector<Bytes> inputs_;
  std::vector<GuardedBuffer> send_;
  std::vector<GuardedBuffer> recv_;  // in place: only one of the two is there
};

// The variants of all sets with these properties; empty strings and 0 mean any.
struct VariantFilter {
  std::string_view collective = {};
  std::string_view algorithm = {};
  std::string_view transport = {};
  std::string_view type = {};
  std::string_view reduction = {};
  int world_size = 0;
};
std::vector<const KernelVariant*> Variants(const VariantFilter& filter);
// Of these the first of each collective, algorithm and transport.
std::vector<const KernelVariant*> OneOfEachKind(const VariantFilter& filter);

std::string NameOf(const KernelVariant& variant);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_CALL_FOR_TEST_H_
