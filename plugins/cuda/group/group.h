// A group of ranks whose GPUs reach each other's memory.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_GROUP_H_
#define COTUNE_PLUGINS_CUDA_GROUP_GROUP_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/driver/graph_uses.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/memory/caller_memory.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/cuda/memory/peer_memory.h"
#include "plugins/cuda/memory/registered_memory.h"
#include "plugins/cuda/memory/side_stream.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/rendezvous.h"

namespace cotune::cuda {

// Streams beside that of a call.
constexpr size_t kSideStreams = 2;

// Every rank has an arena (flags and scratch) that all peers map, and words in host memory that its
// kernels read and write: to end every wait, and to say what failed. One thread at a time, Abort
// and Health excepted.
class Group {
 public:
  // Collective. COTUNE_PEER_FAILED names the rank that did not come by the deadline;
  // COTUNE_UNSUPPORTED on all ranks when one GPU does not reach another's memory. Where there are
  // other groups, what this process has on the GPU ends first: COTUNE_DEADLINE_EXCEEDED when it
  // does not. limits: what this rank's GPU can do.
  static sdk::Result<std::unique_ptr<Group>> Join(const cotune_host_t& host,
                                                  const cotune_group_params_t& params,
                                                  const Gpu& gpu, PeerMemory& memory,
                                                  const ChoiceLimits& limits);
  // Not collective. Ends this rank's kernels first; what they may use is not freed where the GPU
  // does not come to an end, as when a kernel of another library waits for a rank that is gone.
  // Graphs into which calls were captured may live on: what they use stays until the last of them
  // is destroyed, and their replays leave at once without sending or receiving anything.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const Gpu& gpu() const { return gpu_; }
  const cotune_host_t& host() const { return host_; }
  // These limits hold for the GPUs of all ranks together.
  const ChoiceLimits& limits() const { return limits_; }

  // Collective: memory of this rank's caller, the same bytes on all ranks. On all ranks or on none;
  // COTUNE_UNSUPPORTED: memory of this kind cannot be exported, or a GPU does not reach another.
  sdk::Result<void> RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns);
  // Memory that begins at `data`, if it is registered; its launches are over. Does not wait.
  void UnregisterMemory(void* data);
  // Callers' buffers that kernels reach on all ranks; empty until somebody registers some.
  const RegisteredMemory& registered() const { return registered_; }

  // [hot] A call is about to be enqueued on the stream: if that is captured, the graph uses what
  // the group has.
  void NoteCall(gpu::CuStream stream) { graphs_->Add(gpu_.driver(), stream); }

  // which: below kSideStreams.
  SideStream& side_stream(size_t which) { return *side_streams_[which]; }

  // The arguments that every kernel of this group gets; the call's own fields are left empty.
  const KernelArguments& arguments() const { return arguments_; }

  // The failure that made the group unusable, if any.
  std::optional<sdk::Failure> Health() const;
  bool HasFailed() const;
  // Any thread; ends every wait of this rank's kernels.
  void Abort();

 private:
  // In host memory that the device maps.
  struct HostWords {
    FailureRecord failure;
    AbortWord abort;
    // For copies between host and device: what peers have set in an arena, and the poison of a
    // group that goes.
    unsigned int departed[kRanksMax];
    unsigned int poison;
  };
  struct Registration;
  // The addresses on all ranks of a range that is being registered, and the mappings that keep it
  // there.
  struct MappedCallers {
    AddressOnRanks begin{};
    std::vector<PeerMapping> mappings;
  };

  Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
        PeerMemory& memory, const ChoiceLimits& limits);
  sdk::Result<void> AllocateHostWords();
  sdk::Result<void> Connect(int64_t deadline_ns);
  sdk::Result<MemoryOffer> OfferArena(int64_t deadline_ns);
  sdk::Result<void> MapPeers(const std::vector<MemoryOffer>& offers);
  sdk::Result<void> FillArena(int64_t deadline_ns);
  // Returns whether all peers of the group that had the arena have left it.
  bool HaveLeft(const Arena& arena, int64_t deadline_ns);
  // Waits for the kernels of an aborted group, for a time. False: they may still run.
  bool EndKernels();
  // Poisons this rank's arena, so that replays leave at once, and lets the peers know that this
  // rank writes into theirs no more. False: the GPU did not come to it.
  bool Leave();
  // Runs what `enqueue`, which takes a stream and gives a Result, puts into a stream of its own, so
  // that nothing else on the GPU is waited for.
  template <typename Enqueue>
  sdk::Result<void> RunAlone(int64_t deadline_ns, const Enqueue& enqueue) const;
  sdk::Result<void> RegisterOnAll(const sdk::Result<Registration>& registration, int number,
                                  void* data, uint64_t bytes, int64_t deadline_ns);
  sdk::Result<Registration> BeginRegistration(void* data, uint64_t bytes) const;
  sdk::Result<MappedCallers> MapCallers(const Registration& registration,
                                        const std::vector<MemoryOffer>& offers, void* data,
                                        int64_t deadline_ns) const;

  const cotune_host_t& host_;
  const Gpu& gpu_;
  PeerMemory& memory_;
  ChoiceLimits limits_;
  const std::string name_;
  const int rank_;
  const int world_size_;
  std::vector<int32_t> job_ranks_;
  sdk::Rendezvous meeting_;
  gpu::CuDevicePointer arena_ = 0;
  HostWords* words_ = nullptr;
  std::array<std::unique_ptr<SideStream>, kSideStreams> side_streams_;
  std::atomic<bool> is_aborted_{false};
  // All peers' arenas are mapped, and peers may have begun to use this rank's.
  bool is_connected_ = false;
  std::unique_ptr<gpu::GraphUses> graphs_;
  KernelArguments arguments_{};
  RegisteredMemory registered_;
  std::map<void*, std::vector<PeerMapping>> mappings_;  // by where the range begins here
  int registrations_ = 0;                               // so far; alike on all ranks
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_GROUP_H_
