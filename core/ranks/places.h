// Which ranks share a host.
#ifndef COTUNE_CORE_RANKS_PLACES_H_
#define COTUNE_CORE_RANKS_PLACES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// The host of each rank of a group, equal on all of them. Hosts are numbered from 0 in the order in
// which ranks first name them, so that equal placements give equal numbers. Constant.
class Places {
 public:
  static Places OneHost(int world_size);
  // `identities` by rank: equal ones are one host.
  static Places Of(std::span<const std::string> identities);

  const std::vector<int32_t>& host_of_rank() const { return host_of_rank_; }
  int world_size() const { return static_cast<int>(host_of_rank_.size()); }
  int host_count() const;
  bool is_one_host() const { return host_count() <= 1; }
  // How many ranks are on the host of this one, itself among them.
  int ranks_on_host(int rank) const;
  // How many ranks each host has; 0 when hosts differ. Part of what a measurement is keyed by.
  int ranks_per_host() const;
  // Those of a subgroup: `ranks` are ranks of these places, in the subgroup's order.
  Places OfRanks(std::span<const int> ranks) const;

  bool operator==(const Places&) const = default;

 private:
  explicit Places(std::vector<int32_t> host_of_rank) : host_of_rank_(std::move(host_of_rank)) {}

  std::vector<int32_t> host_of_rank_;
};

// Collective: every rank says on which host it is, and all of them come to the same places.
// kEnvironment on all ranks when one has no identity.
Result<Places> ExchangePlaces(RankExchange& exchange, std::string_view host_identity,
                              int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_RANKS_PLACES_H_
