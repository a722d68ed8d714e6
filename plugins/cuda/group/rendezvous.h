// How the ranks of a group tell each other of their memory: each puts a word into the job's store,
// and reads all.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_RENDEZVOUS_H_
#define COTUNE_PLUGINS_CUDA_GROUP_RENDEZVOUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/cuda/memory/peer_memory.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// One thread at a time.
class Rendezvous {
 public:
  Rendezvous(const cotune_host_t& host, const cotune_group_params_t& params)
      : host_(host), group_name_(params.name), rank_(params.rank), world_size_(params.world_size) {}

  // Collective; `phase` is new in this group. A rank that failed says so to all, and then all fail.
  // COTUNE_PEER_FAILED names the rank that did not come by the deadline.
  sdk::Result<std::vector<MemoryOffer>> Exchange(const std::string& phase,
                                                 const sdk::Result<MemoryOffer>& own,
                                                 int64_t deadline_ns);
  // Every rank, when it reads none of these phases any more, whatever came of them. Nothing of them
  // stays in the store, unless a rank does not come to this by the deadline: it may come later, and
  // read why the others have failed.
  void Part(const std::vector<std::string>& phases, int64_t deadline_ns);

 private:
  // What is in the store.
  struct Word;

  std::string KeyOf(const std::string& phase, int rank) const;

  const cotune_host_t& host_;
  const std::string group_name_;
  const int rank_;
  const int world_size_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_RENDEZVOUS_H_
