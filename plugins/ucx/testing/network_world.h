// Ranks in network namespaces of their own, joined by a bridge: several hosts, played on one.
#ifndef COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_
#define COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_

#include <functional>
#include <string>

#include "plugins/testing/rank_processes.h"

namespace cotune::ucx {

// Empty where namespaces, veth and bridges can be had here; else the reason that the system gives.
std::string WhyNoNetworkWorld();
// The same for delays and losses of `tc netem`.
std::string WhyNoNetem();

// The device of every rank in its namespace.
inline constexpr char kRankDevice[] = "eth0";

// Runs `body` as one process a rank, each in a namespace of its own. `netem` is what each device
// does to what it sends ("delay 1ms"); empty: nothing. `during` runs meanwhile, in the namespace of
// the bridge. Empty, or what the ranks report.
std::string RunInNetworkWorld(
    int ranks, const std::string& netem, const backend_test::RankBody& body,
    const std::function<void()>& during = [] {});

// For `during`: takes the link of a rank down.
void TakeLinkDown(int rank);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_
