// Calls of choices that leave the moving to copy engines, as Plan enqueues them: copies of a phase
// are done as a stream does them, one after the other on each rank, those of different phases and
// that of a rank to itself at any time, and all that orders them on different ranks are barriers.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/cpu_runner/exact_data.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

namespace cotune::cuda::cpu {

// A launch in which the ranks wait for each other, as part of a call. From a program.
void CopyBarrier(RanksOnCpu& ranks, int rank, const CallRecord& of_call = {});

// Called by a rank's program between the launches of a call, `place` counted from 0: a stream may
// stand still there.
using BetweenLaunches = std::function<void(int rank, size_t place)>;

// A collective that only moves data. Its buffers belong to it only while it runs.
class MovingCall {
 public:
  // Exact data.
  MovingCall(const sdk::Problem& problem, unsigned int salt);
  // salt: decides what runs beside what.
  MovingCall(const sdk::Problem& problem, std::vector<Bytes> inputs, unsigned int salt);

  // From a program.
  void Run(RanksOnCpu& ranks, int rank);
  void set_between_launches(BetweenLaunches call) { between_launches_ = std::move(call); }
  // Empty when every rank got what it must get, and nothing was written after the end.
  std::string Difference() const;
  // The same for one rank.
  std::string DifferenceAt(int rank) const;
  // Before the rank's call: whether no byte of its buffers has changed. After it: whether none has
  // since the rank had them back. For calls that fail, too.
  bool IsUntouchedBefore(int rank) const;
  bool IsUntouchedAfter(int rank) const;
  // The call as its ranks compare it; in place or not is no difference.
  CallRecord Record() const;

 private:
  // The content of a receive buffer at the beginning.
  Bytes ReceiveBefore(size_t rank) const;
  void CopyHere(RanksOnCpu& ranks, int rank, const BufferCopy& copy);
  void Copy(size_t rank, const BufferCopy& copy);
  struct PendingCopies {
    size_t stream;  // of the two that take turns
    const std::vector<BufferCopy>* copies;
  };
  // Does copies until those of so many phases are left.
  void CopyUntil(size_t left, size_t rank, std::deque<PendingCopies>& pending);

  sdk::Problem problem_;
  unsigned int salt_;
  Problem call_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
  BetweenLaunches between_launches_ = [](int, size_t) {};
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
  // These are as those of MovingCall.
  void set_between_launches(BetweenLaunches call) { between_launches_ = std::move(call); }
  std::string Difference() const;
  std::string DifferenceAt(int rank) const;
  bool IsUntouchedBefore(int rank) const;
  bool IsUntouchedAfter(int rank) const;
  CallRecord Record() const;
  // Returns the receive buffer of a rank as it was when the rank's call had ended.
  Bytes Received(int rank) const;

 private:
  void Launch(RanksOnCpu& ranks, int rank, int segment);
  void CopyAll(int rank, const std::vector<BufferCopy>& copies);
  // The send buffer of a rank at the beginning.
  Bytes SendBefore(size_t rank) const;

  const KernelVariant& kernel_;
  size_t misalignment_;
  unsigned int salt_;
  Problem call_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> sent_;
  std::vector<Bytes> received_;
  std::vector<Bytes> results_;  // of each rank, when its call had ended
  BetweenLaunches between_launches_ = [](int, size_t) {};
};

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_COPY_ENGINE_CALL_H_
