// Measures contenders side by side on f32: collective by collective, size by size, in rounds in
// which they take turns. A round has a barrier, calls back to back for some milliseconds, and the
// largest mean over the ranks; a time is the median over the rounds. Values are compared with what
// is right before. bytes is the larger of one rank's send and receive buffer.
#ifndef COTUNE_BENCHMARKS_HOST_SIDE_BY_SIDE_H_
#define COTUNE_BENCHMARKS_HOST_SIDE_BY_SIDE_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {

const std::map<std::string, cotune_collective>& Collectives();

struct SideBySideOptions {
  std::vector<std::string> collectives = {"all_reduce", "all_gather", "reduce_scatter",
                                          "all_to_all", "broadcast"};
  std::vector<uint64_t> sizes_bytes;
  int rounds = 9;
  double sample_seconds = 0.02;
  int min_calls = 4;  // of a sample
  std::string title;  // behind the number of ranks, in heads of tables
  nlohmann::json labels = nlohmann::json::object();  // further members of each line of JSON
};

// The collectives of the options.
std::vector<cotune_collective> CollectivesOf(const SideBySideOptions& options);

// Measures all cells. Every rank of MPI_COMM_WORLD calls it with the same; the first contender is
// one of cotune's. Rank 0 prints the tables and, with a file in BENCHMARK_OUT, adds a line of JSON
// for each cell to it.
void MeasureSideBySide(const SideBySideOptions& options,
                       std::vector<std::unique_ptr<Contender>> contenders);

// A new folder, made by rank 0 of MPI_COMM_WORLD and known to all ranks.
std::string CommonFolder();

}  // namespace cotune::bench

#endif  // COTUNE_BENCHMARKS_HOST_SIDE_BY_SIDE_H_
