// The ranks of one group on the CPU: an arena and a stream each.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_RANKS_ON_CPU_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_RANKS_ON_CPU_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "plugins/cuda/cpu_runner/kernel_block.h"

namespace cotune::cuda::cpu {

enum class Threads {
  kOneForAll,   // one thread of the CPU runs all ranks: a seed gives one schedule
  kOneForEach,  // each rank has its own: real concurrency
};

class RanksOnCpu {
 public:
  // first_step: where the count of steps begins.
  explicit RanksOnCpu(int world_size, unsigned int first_step = 0);
  ~RanksOnCpu();
  RanksOnCpu(const RanksOnCpu&) = delete;
  RanksOnCpu& operator=(const RanksOnCpu&) = delete;

  int world_size() const { return world_size_; }

  // program(rank) runs on every rank, as what a host puts on one stream: it calls Launch and Delay.
  // False: some threads wait for ever.
  bool Run(const std::function<void(int rank)>& program, uint64_t seed,
           Threads threads = Threads::kOneForAll);

  // ---- From within a program ----
  // Runs the kernel to its end. call: buffers, sizes and root; the group's own fields are filled
  // in.
  void Launch(int rank, KernelFunction kernel, const KernelArguments& call,
              const LaunchShape& shape);
  // The same arguments with the group's own fields, for kernels with more parameters.
  KernelArguments ArgumentsOf(int rank, const KernelArguments& call);
  static void Delay(uint64_t duration_ns);

  // Before any launch: as if so many messages had gone through every queue.
  void SetQueueCounts(uint64_t messages);
  // Before any launch: as if the group had made so many.
  void SetLaunchCounts(unsigned int launches);
  // Before any launch: as if each rank had last read its abort word at this tick.
  void SetLookedTick(unsigned int tick);
  void Abort(int rank);
  const FailureRecord& failure(int rank) const {
    return states_[static_cast<size_t>(rank)].failure;
  }
  // As the host of the rank sees it.
  bool HasFailed(int rank) const;
  void set_timeout_ns(uint64_t timeout_ns) { timeout_ns_ = timeout_ns; }
  // Whether all scratch is as at the beginning, which every launch has to leave behind.
  bool ScratchIsClean() const;

 private:
  struct State {
    unsigned char* arena = nullptr;
    FailureRecord failure = {};
    AbortWord abort = {};
  };
  int world_size_;
  uint64_t timeout_ns_ = 200'000'000;
  std::vector<State> states_;
};

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_RANKS_ON_CPU_H_
