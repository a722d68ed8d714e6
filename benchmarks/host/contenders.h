// Ways to run a collective on host memory that are measured side by side: cotune's tuned table,
// Open MPI and Gloo. Each is used through its public calls, as its users do.
#ifndef COTUNE_BENCHMARKS_HOST_CONTENDERS_H_
#define COTUNE_BENCHMARKS_HOST_CONTENDERS_H_

#include <cstdint>
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
  // Before the calls of a workload, untimed.
  virtual void Prepare(const Workload& workload) = 0;
  // One call; what Prepare got still lives.
  virtual void Run() = 0;
  // The choice that ran, for the table; empty when there is nothing to say.
  virtual std::string Chosen() { return ""; }
};

// Tunes `collectives` (COTUNE_COLLECTIVE_*) at `sizes_bytes` first, with a database if one is
// given. Ranks come from the launcher.
std::unique_ptr<Contender> MakeCotune(const std::string& plugin_path,
                                      const std::vector<cotune_collective>& collectives,
                                      const std::vector<uint64_t>& sizes_bytes,
                                      const std::string& database_path);

// MPI_Init has been called.
std::unique_ptr<Contender> MakeOpenMpi();

// Meets over files in `folder`, which all ranks see, is empty and stays the caller's.
std::unique_ptr<Contender> MakeGloo(int rank, int world_size, const std::string& folder);

[[noreturn]] void Die(const std::string& text);

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_HOST_CONTENDERS_H_
