// Device memory of this rank that its peers can reach, and theirs as mapped here.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_PEER_MEMORY_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_PEER_MEMORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver/graph_uses.h"
#include "plugins/cuda/memory/caller_memory.h"
#include "plugins/cuda/memory/descriptor_socket.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// A rank's description of its memory for the others; it goes through the job's store as bytes.
struct MemoryOffer {
  gpu::CuIpcMemHandle handle{};  // of memory that this backend has allocated
  int64_t pid = 0;
  uint64_t bytes = 0;
  // For a caller's memory: its allocation, and the socket that takes the peers' descriptors.
  uint64_t allocation_bytes = 0;
  uint64_t offset = 0;
  char socket[DescriptorSocket::kNameBytesMax] = {};
  uint64_t secret[2] = {};
  // For an arena: the rank's GPU has programmatic dependent launch.
  uint64_t has_pdl = 0;
};

// The memory of a rank that its peers write into while a group lives.
struct Arena {
  gpu::CuDevicePointer data = 0;
  uint64_t bytes = 0;
  int rank = 0;  // rank of this process in the group
  int world_size = 1;
  // True if peers may have begun to use it.
  bool is_shared = false;
};

// Everything that a group leaves when it goes. Graphs into which its calls were captured use all of
// it.
struct GroupRemains {
  Arena arena;
  void* host_words = nullptr;         // pinned
  std::vector<PeerMapping> mappings;  // peers' mappings of callers' memory
  std::unique_ptr<gpu::GraphUses> graphs;
};

// Memory is shared by CUDA IPC. It is never freed nor unmapped while the process uses this GPU: a
// peer that was cut off may still be writing when its group ends here, and a mapping may be used by
// another group. An arena that a group gives back serves a later one when no graph of this process
// uses it and no peer writes into it any more. If the GPU is stuck in the end, a graph lives, or a
// group was abandoned, all is left to the process. Any thread; the context is current.
class PeerMemory {
 public:
  // socket_bases: folders for the sockets that take descriptors of callers' memory, see
  // SocketFolder. They are chosen once, because the environment is not read any more when memory is
  // registered.
  PeerMemory(const Gpu& gpu, std::vector<std::string> socket_bases)
      : gpu_(gpu), socket_bases_(std::move(socket_bases)) {}
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  const std::vector<std::string>& socket_bases() const { return socket_bases_; }

  // Memory of exactly these bytes: one that was given back, or new. Its content is undefined.
  // have_left: whether all peers of the group that gave an arena back have left it; asked for
  // arenas that are shared.
  using HaveLeft = std::function<bool(const Arena& arena)>;
  sdk::Result<gpu::CuDevicePointer> Take(uint64_t bytes, const HaveLeft& have_left);
  // None of this rank's kernels of the group runs any more.
  void GiveBack(GroupRemains remains);
  // Some may still run, so that nothing of it is used again or freed, not even when they have
  // ended: a graph may start them anew.
  void Abandon(GroupRemains remains);
  // Whether some memory has not been given back.
  bool HasTaken();
  // Returns true while a graph lives that uses a group which has gone, and for good after Abandon.
  // No group lives.
  bool IsInUse();

  // How the peers find memory that Take gave.
  sdk::Result<MemoryOffer> OfferOf(gpu::CuDevicePointer pointer, uint64_t bytes) const;
  // A peer's memory in this process. COTUNE_UNSUPPORTED: this GPU does not reach that one.
  sdk::Result<gpu::CuDevicePointer> Map(const MemoryOffer& offer);

 private:
  // Frees what only graphs have used that are gone.
  void Sweep();

  const Gpu& gpu_;
  const std::vector<std::string> socket_bases_;
  std::mutex mutex_;
  std::vector<gpu::CuDevicePointer> allocated_;
  int taken_ = 0;                        // and not given back
  std::vector<Arena> free_;              // that no graph uses
  std::vector<GroupRemains> in_graphs_;  // given back, and used by graphs
  std::vector<GroupRemains> abandoned_;
  std::map<std::string, gpu::CuDevicePointer> mapped_;  // by handle
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_PEER_MEMORY_H_
