// Starts a program as ranks of Open MPI.
#ifndef COTUNE_BENCHMARKS_HOST_MPIRUN_H_
#define COTUNE_BENCHMARKS_HOST_MPIRUN_H_

#include <string>
#include <vector>

namespace cotune::bench {

// The file of this program.
std::string OwnPath();

// Runs `mpirun flags command` to its end; its exit code.
int RunMpirun(int ranks, const std::vector<std::string>& flags,
              const std::vector<std::string>& command);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_HOST_MPIRUN_H_
