// Processes in namespaces of their own that play hosts for mpirun: each has a network and a host
// name, and an agent in place of ssh starts commands there.
#ifndef COTUNE_BENCHMARKS_UCX_PLAYED_HOST_H_
#define COTUNE_BENCHMARKS_UCX_PLAYED_HOST_H_

#include <string>

namespace cotune::bench {

// The name of the host that the process of a rank plays.
std::string HostName(int rank);

// Gives this process, which has a network of its own, the name of its host, and tells the agent by
// a file in the folder. Empty, or what went wrong.
std::string PlayHost(int rank, const std::string& folder);

// Runs the command of a shell on the host: in the namespaces of the process that plays it. Returns
// only when that fails, with an exit code.
int RunOnHost(const std::string& folder, const std::string& host, const std::string& command);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_UCX_PLAYED_HOST_H_
