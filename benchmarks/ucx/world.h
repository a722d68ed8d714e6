// A world is the place of the ranks: one host, or a network for each of them.
#ifndef COTUNE_BENCHMARKS_UCX_WORLD_H_
#define COTUNE_BENCHMARKS_UCX_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cotune::bench {

struct World {
  bool is_one_host = true;
  int64_t delay_us = 0;  // of the links between networks
  int ranks = 2;
};

// Processors that are wanted all the time: those of the ranks and, between networks, the one of the
// switch or of the system's own work for the bridge.
int BusyProcesses(const World& world);

// "one host", "networks, 100 us".
std::string TitleOf(const World& world);

// Empty where such a world can be had here; else the reason that the system gives.
std::string WhyNot(const World& world);

// Each command as `mpirun flags command` with a rank at each place of the world, one after the
// other. `folder` is empty and stays the caller's. Empty, or what went wrong.
struct Launch {
  std::vector<std::string> flags;
  std::vector<std::string> command;
};
std::string RunInWorld(const World& world, const std::string& folder,
                       const std::vector<Launch>& launches);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_UCX_WORLD_H_
