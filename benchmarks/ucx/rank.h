// The work of one rank under mpirun: the contenders of its world, side by side.
#ifndef COTUNE_BENCHMARKS_UCX_RANK_H_
#define COTUNE_BENCHMARKS_UCX_RANK_H_

#include <string>
#include <vector>

#include "benchmarks/host/side_by_side.h"
#include "benchmarks/ucx/world.h"

namespace cotune::bench {

struct RankOptions : SideBySideOptions {
  World world;
  std::string pml;                    // of Open MPI: "ob1" or "ucx"
  std::vector<std::string> settings;  // of the backend ucx, "KEY = VALUE"
  std::string database_folder;
  double tune_seconds = 0;  // budget
  std::string plugins;      // the folder of the folders host and ucx
};

// Options of mpirun for Open MPI by this pml.
std::vector<std::string> OpenMpiFlags(const World& world, const std::string& pml);

int RunRank(RankOptions options);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_UCX_RANK_H_
