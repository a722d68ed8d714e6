// Lines the ranks up on their GPUs: a kernel that ends on all of them at the same moment.
#ifndef COTUNE_GPU_DEVICE_RANK_ALIGNMENT_H_
#define COTUNE_GPU_DEVICE_RANK_ALIGNMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"
#include "gpu/device/cuda_stream.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// Every rank has an array of flags in its device memory that its peers write into (CUDA IPC). The
// kernel waits for a word of the host first, so that what is timed can be queued behind it: neither
// launch latency nor the skew of the hosts is inside the timed part. One thread.
class RankAlignment {
 public:
  // Collective over the exchange; the context is current. What is prepared goes through `stream`.
  // kUnsupported, on all ranks alike: some
  // rank cannot reach the memory of another.
  static Result<std::unique_ptr<RankAlignment>> Create(const CudaDriver& driver, CudaStream& stream,
                                                       RankExchange& exchange, int64_t deadline_ns);
  ~RankAlignment();
  // Leaves all that it has to the process: the end frees nothing.
  void Abandon();
  RankAlignment(const RankAlignment&) = delete;
  RankAlignment& operator=(const RankAlignment&) = delete;

  // Keeps the GPU busy for this long: one that was idle runs at a low clock at first.
  Status Wake(CuStream stream, int64_t duration_ns);

  // Enqueues the kernel; it ends when every rank has enqueued its own for this moment and called
  // Release. moment_ns: equal on all ranks and later than all before, whatever became of those.
  Status Enqueue(CuStream stream, int64_t moment_ns, int64_t timeout_ns);
  // Everything that is to be timed is in the stream behind it.
  void Release();
  // After the stream is done: the rank of the job that did not come in time, -1 when all came.
  int late_rank() const;

 private:
  explicit RankAlignment(const CudaDriver& driver) : driver_(driver) {}
  Status LaunchKernel(CuStream stream, int64_t timeout_ns);
  Status AllocateFlags(int world_size, CudaStream& stream, int64_t deadline_ns);
  Status OpenPeers(const std::vector<std::string>& handles, int rank, CudaStream& stream,
                   int64_t deadline_ns);
  Status LoadKernel();

  const CudaDriver driver_;
  int rank_ = 0;
  int world_size_ = 1;
  std::vector<int> job_ranks_;  // what texts call these ranks
  uint64_t moment_ns_ = 0;
  CuDevicePointer flags_ = 0;                // uint64_t[world_size], written by the peers
  CuDevicePointer table_ = 0;                // of each rank's flags as mapped here
  std::vector<CuDevicePointer> opened_;      // flags of the peers
  volatile uint64_t* host_words_ = nullptr;  // [0]: moment that may go; [1]: 1 + late rank
  CuDevicePointer host_words_on_device_ = 0;
  CuModule module_ = nullptr;
  CuFunction kernel_ = nullptr;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_RANK_ALIGNMENT_H_
