// One call of a kernel on all ranks, with its buffers and what must come out.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_CALL_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/cpu_runner/exact_data.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {

// A buffer with a guard on both sides, at an offset from a place that is aligned to a pack.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, size_t offset_bytes);
  unsigned char* data() { return memory_.data() + begin_; }
  void Write(const Bytes& content);
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

// Its buffers belong to the kernels only while a rank's launch runs: they hold other data before
// and after it, so that it shows when anybody touches them then.
class Call {
 public:
  Call(const KernelVariant& variant, const CallShape& shape);
  Call(const KernelVariant& variant, const CallShape& shape, std::vector<Bytes> inputs);

  // From a program.
  void Launch(RanksOnCpu& ranks, int rank);
  // Empty when every rank got what it must get, and nothing beside it was touched.
  std::string Difference() const;
  // The same for one rank.
  std::string DifferenceAt(int rank) const;
  // The call as its ranks compare it.
  CallRecord Record() const;

  const Problem& problem() const { return problem_; }
  const std::vector<Bytes>& inputs() const { return inputs_; }
  // The receive buffer of a rank when its launch had ended.
  Bytes Received(int rank) const;

 private:
  // One rank.
  struct Buffers {
    GuardedBuffer send;  // in place: not used
    GuardedBuffer recv;  // in place: the larger one, where both are
    Bytes sent_after;    // content at the end of the launch
    Bytes received_after;
  };
  unsigned char* SendOf(size_t rank);
  unsigned char* ReceiveOf(size_t rank);
  // The initial content of the buffer that is both send and receive buffer.
  Bytes InPlaceContent(size_t rank) const;

  const KernelVariant& variant_;
  CallShape shape_;
  Problem problem_;
  std::vector<Bytes> inputs_;
  std::vector<Buffers> buffers_;
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
// Among the variants that the filter passes, the first of each collective, algorithm and transport.
std::vector<const KernelVariant*> OneOfEachKind(const VariantFilter& filter);

std::string NameOf(const KernelVariant& variant);

// A call as its ranks compare it. choice: the name of all that decides what runs.
CallRecord RecordOf(const std::string& choice, uint64_t count, int root);
// Whether a kernel has seen this call, whatever its number was.
bool IsSameCall(const CallRecord& seen, const CallRecord& call);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_CALL_H_
