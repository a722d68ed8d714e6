// A group of ranks whose GPUs reach each other's memory.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_H_
#define COTUNE_PLUGINS_CUDA_GROUP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/border/failure.h"
#include "plugins/cuda/gpu.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/peer_memory.h"
#include "plugins/cuda/registered_memory.h"

namespace cotune::cuda {

// Every rank has an arena (flags and scratch) that all peers map, and words in host memory that its
// kernels read and write: to end every wait, and to say what failed. One thread at a time, Abort
// and Health excepted.
class Group {
 public:
  // Collective. COTUNE_PEER_FAILED names the rank that did not come by the deadline;
  // COTUNE_UNSUPPORTED on all ranks when one GPU does not reach another's memory.
  static border::Result<std::unique_ptr<Group>> Join(const cotune_host_t& host,
                                                     const cotune_group_params_t& params,
                                                     const Gpu& gpu, PeerMemory& memory);
  // Not collective. Ends this rank's kernels first.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const Gpu& gpu() const { return gpu_; }
  const cotune_host_t& host() const { return host_; }

  // Callers' buffers that kernels reach on all ranks; empty until somebody registers some.
  RegisteredMemory& registered() { return registered_; }
  const RegisteredMemory& registered() const { return registered_; }

  // What every kernel of this group gets; the call's own fields are left empty.
  const KernelArguments& arguments() const { return arguments_; }

  // The failure that made the group unusable, if any.
  std::optional<border::Failure> Health() const;
  bool HasFailed() const;
  // Any thread; ends every wait of this rank's kernels.
  void Abort();

 private:
  // In host memory that the device maps.
  struct HostWords {
    FailureRecord failure;
    AbortWord abort;
  };
  // What a rank puts into the store in each phase of joining.
  struct Word;

  Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
        PeerMemory& memory);
  border::Result<void> AllocateHostWords();
  border::Result<MemoryOffer> OfferArena();
  border::Result<void> MapPeers(const std::vector<MemoryOffer>& offers);
  border::Result<void> FillArena();
  // Every rank puts its word and reads all; a rank that failed says so to all.
  border::Result<std::vector<MemoryOffer>> Exchange(const char* phase,
                                                    const border::Result<MemoryOffer>& own,
                                                    int64_t deadline_ns);
  std::string KeyOf(const char* phase, int rank) const;

  const cotune_host_t& host_;
  const Gpu& gpu_;
  PeerMemory& memory_;
  const std::string name_;
  const int rank_;
  const int world_size_;
  std::vector<int32_t> job_ranks_;
  gpu::CuDevicePointer arena_ = 0;
  HostWords* words_ = nullptr;
  std::atomic<bool> is_aborted_{false};
  KernelArguments arguments_{};
  RegisteredMemory registered_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_H_
