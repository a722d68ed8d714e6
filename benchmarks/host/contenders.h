// Ways to run a collective on host memory that are measured side by side: cotune's tuned table,
// Open MPI and Gloo. Each is used through its public calls, as its users do.
#ifndef COTUNE_BENCHMARKS_HOST_CONTENDERS_H_
#define COTUNE_BENCHMARKS_HOST_CONTENDERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"

namespace cotune::bench {

// One collective on f32, sums, out of place; a broadcast from rank 0 in place in `recv`.
struct Workload {
  cotune_collective collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  uint64_t count = 0;  // as in cotune.h
  int rank = 0;
  int world_size = 1;
  float* send = nullptr;
  float* recv = nullptr;

  uint64_t SendElements() const;
  uint64_t RecvElements() const;
};

// All ranks make the same calls. What goes wrong ends the process with a message: a benchmark has
// nothing to go on with.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string Name() const = 0;
  // False for cotune's own.
  virtual bool IsPeer() const { return true; }
  // Before the calls of a workload, untimed.
  virtual void Prepare(const Workload& workload) = 0;
  // One call; what Prepare got still lives.
  virtual void Run() = 0;
  // The choice that ran, for the table; empty when there is nothing to say.
  virtual std::string Chosen() { return ""; }
  // The map has the fastest time of each algorithm in us that the tune measured for the workload,
  // by "backend/algorithm". It is empty on other ranks than 0.
  virtual std::map<std::string, double> AlgorithmTimes() { return {}; }
};

struct CotuneOptions {
  std::string name = "cotune";
  std::string plugin_path;    // folders, separated by ':'
  std::string settings_path;  // a settings file; empty: what the user has
  // The socket of the control channel; each group needs another one. The ranks are then those of
  // MPI_COMM_WORLD and share a file system. Empty: the launcher says which ranks there are, and has
  // to have started all of them on one host.
  std::string socket_path;
  // It tunes these first.
  std::vector<cotune_collective> collectives;
  std::vector<uint64_t> sizes_bytes;
  int64_t budget_ns = 600'000'000'000;
  std::string database_path;  // empty: what it tuned is not kept
};

std::unique_ptr<Contender> MakeCotune(const CotuneOptions& options);

// MPI_Init has been called. The name says how it is configured.
std::unique_ptr<Contender> MakeOpenMpi(const std::string& name);

// The ranks are those of MPI_COMM_WORLD. They meet over files in `folder`, which all ranks see,
// is empty and stays the caller's; the data goes over the network interface.
std::unique_ptr<Contender> MakeGloo(const std::string& folder, const std::string& interface);

[[noreturn]] void Die(const std::string& text);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_HOST_CONTENDERS_H_
