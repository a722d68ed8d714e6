// How the ranks of a group meet: each says how it fares, and reads what all others said.
#ifndef COTUNE_PLUGINS_NCCL_RENDEZVOUS_H_
#define COTUNE_PLUGINS_NCCL_RENDEZVOUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/nccl_abi.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// What one rank tells the others in one phase.
struct Announcement {
  int32_t nccl_version = 0;
  bool compares_calls = false;
  NcclUniqueId id{};  // of rank 0, in the first phase
};

// One thread at a time.
class Rendezvous {
 public:
  Rendezvous(const cotune_host_t& host, const cotune_group_params_t& params);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const std::string& group_name() const { return group_name_; }
  // "job rank 7 (rank 3 of the group)".
  std::string NameOf(int rank) const;

  // Collective; `phase` is new in this group. A rank that failed tells why instead, and then all
  // fail. COTUNE_PEER_FAILED names the rank that did not come by the deadline. A meeting leaves
  // nothing in the store; one that failed leaves the reason, for ranks that come later.
  Result<std::vector<Announcement>> Meet(const std::string& phase, const Result<Announcement>& own,
                                         int64_t deadline_ns);

 private:
  // The bytes of it in the store.
  struct Word;

  std::string KeyOf(const std::string& phase, int rank) const;
  Result<void> Put(const std::string& phase, const Result<Announcement>& own);
  Result<Announcement> Get(const std::string& phase, int rank, int64_t deadline_ns) const;
  // Deletes a phase when every rank has read it.
  Result<void> Part(const std::string& phase, int64_t deadline_ns);

  const cotune_host_t& host_;
  const std::string group_name_;
  const int rank_;
  const int world_size_;
  const std::vector<int32_t> job_ranks_;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_RENDEZVOUS_H_
