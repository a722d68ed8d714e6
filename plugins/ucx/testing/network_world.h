// Ranks in network namespaces of their own, joined by a bridge or a slow switch: several hosts,
// played on one.
#ifndef COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_
#define COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_

#include <functional>
#include <string>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/slow_switch.h"

namespace cotune::ucx {

// Empty where namespaces, veth and bridges can be had here; else the reason that the system gives.
std::string WhyNoNetworkWorld();
// The same for the TAP devices of a slow switch.
std::string WhyNoSlowSwitch();

// The device of every rank in its namespace.
inline constexpr char kRankDevice[] = "eth0";

// Runs `body` as one process a rank, each in a namespace of its own. Perfect links lead to a bridge
// of the system, others to a SlowSwitch. `during` runs meanwhile, in the namespace of the bridge.
// Empty, or what the ranks report.
std::string RunInNetworkWorld(
    int ranks, LinkQuality quality, const backend_test::RankBody& body,
    const std::function<void()>& during = [] {});

// For `during`: takes the link of a rank to the bridge down.
void TakeLinkDown(int rank);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TESTING_NETWORK_WORLD_H_
