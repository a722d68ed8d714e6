#include "benchmarks/ucx/world.h"

#include <unistd.h>

#include "benchmarks/host/mpirun.h"
#include "benchmarks/ucx/played_host.h"
#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/network_world.h"

namespace cotune::bench {
namespace {

enum Event { kHasHost, kFinished };

ucx::LinkQuality QualityOf(const World& world) { return {.delay_ns = world.delay_us * 1000}; }

// Hosts by their names, the agent in place of ssh, and all of mpirun's own traffic over the device.
std::vector<std::string> FlagsOfHosts(const World& world, const std::string& folder) {
  std::string hosts;
  for (int rank = 0; rank < world.ranks; ++rank) {
    hosts += (rank == 0 ? "" : ",") + HostName(rank) + ":1";
  }
  return {"--host",
          hosts,
          "--mca",
          "plm_rsh_agent",
          OwnPath() + " --agent " + folder,
          "--mca",
          "oob_tcp_if_include",
          ucx::kRankDevice,
          "--mca",
          "btl_tcp_if_include",
          ucx::kRankDevice};
}

std::string RunAll(const World& world, const std::vector<std::string>& flags,
                   const std::vector<Launch>& launches) {
  for (const Launch& launch : launches) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), launch.flags.begin(), launch.flags.end());
    const int code = RunMpirun(world.ranks, all, launch.command);
    if (code != 0) return TitleOf(world) + ": mpirun ended with code " + std::to_string(code);
  }
  return "";
}

}  // namespace

int BusyProcesses(const World& world) { return world.ranks + (world.is_one_host ? 0 : 1); }

std::string TitleOf(const World& world) {
  return world.is_one_host ? "one host" : "networks, " + std::to_string(world.delay_us) + " us";
}

std::string WhyNot(const World& world) {
  if (world.is_one_host) return "";
  // Others get networks with a user namespace, where folders of root belong to nobody.
  if (geteuid() != 0)
    return "root alone; cotune loads no plugin from folders that belong to nobody";
  return QualityOf(world).is_perfect() ? ucx::WhyNoNetworkWorld() : ucx::WhyNoSlowSwitch();
}

std::string RunInWorld(const World& world, const std::string& folder,
                       const std::vector<Launch>& launches) {
  if (world.is_one_host) return RunAll(world, {}, launches);
  backend_test::JobForTest events;
  return ucx::RunInNetworkWorld(world.ranks, QualityOf(world), [&](int rank) -> std::string {
    std::string wrong = PlayHost(rank, folder);
    events.Post(kHasHost);
    events.Await(rank == 0 ? kHasHost : kFinished, rank == 0 ? world.ranks : 1);
    if (rank != 0) return wrong;
    if (wrong.empty()) wrong = RunAll(world, FlagsOfHosts(world, folder), launches);
    events.Post(kFinished);
    return wrong;
  });
}

}  // namespace cotune::bench
