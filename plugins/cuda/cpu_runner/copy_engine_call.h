// Calls of choices that leave the moving to copy engines, as Plan enqueues them: copies are done as
// a stream does them, one after the other on each rank, that of a rank to itself at any time, and
// all that orders them on different ranks are barriers.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/cpu_runner/exact_data.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {

// A launch in which the ranks wait for each other. From a program.
void CopyBarrier(RanksOnCpu& ranks, int rank);

// A collective that only moves data. Its buffers belong to it only while it runs.
class MovingCall {
 public:
  // Exact data.
  MovingCall(const sdk::Problem& problem, unsigned int salt);
  // salt: decides what runs beside what.
  MovingCall(const sdk::Problem& problem, std::vector<Bytes> inputs, unsigned int salt);

  // From a program.
  void Run(RanksOnCpu& ranks, int rank);
  // Empty when every rank got what it must get, and nothing was written after the end.
  std::string Difference() const;
  // True when no byte of the rank's buffers has changed, as before it runs. The buffers are not the
  // same ones.
  bool IsUntouchedAt(int rank) const;

 private:
  void CopyHere(RanksOnCpu& ranks, int rank, const BufferCopy& copy);
  void Copy(size_t rank, const BufferCopy& copy);

  sdk::Problem problem_;
  unsigned int salt_;
  Problem call_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
};

// all_reduce in segments. What runs beside an adding up runs before it or after it, by rank: in
// between it meets the same bytes.
class AddingCall {
 public:
  // Exact data. misalignment: bytes that the buffers begin behind an aligned address.
  AddingCall(const KernelVariant& kernel, uint64_t count, size_t misalignment, unsigned int salt);
  AddingCall(const KernelVariant& kernel, std::vector<Bytes> inputs, size_t misalignment,
             unsigned int salt);

  // From a program.
  void Run(RanksOnCpu& ranks, int rank);
  // As that of MovingCall.
  std::string Difference() const;
  // Returns the receive buffer of a rank as it was when the rank's call had ended.
  Bytes Received(int rank) const;

 private:
  void Launch(RanksOnCpu& ranks, int rank, int segment);
  void CopyAll(int rank, const std::vector<BufferCopy>& copies);

  const KernelVariant& kernel_;
  size_t misalignment_;
  unsigned int salt_;
  Problem call_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
};

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_
