// cotune's tuned table beside Open MPI and Gloo on host memory, in one run, on f32.
//
//   peers_bench --ranks 2,4 --sizes 64,4096,1048576 --collective all_reduce,broadcast
//
// Starts itself by mpirun once for each number of ranks, bound to cores as mpirun does by itself.
// cotune tunes first; side_by_side.h says how the contenders are measured then. With a file in
// BENCHMARK_OUT the same as JSON, a line for each cell.
#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "benchmarks/host/contenders.h"
#include "benchmarks/host/mpirun.h"
#include "benchmarks/host/side_by_side.h"

namespace cotune::bench {
namespace {

struct Options : SideBySideOptions {
  Options() {
    sizes_bytes = {64,      256,     1024,    4096,     16384,   65536,
                   1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  }

  std::vector<int> ranks = {2, 4};
  CotuneOptions cotune;
};

int RunRank(const Options& options) {
  MPI_Init(nullptr, nullptr);
  const std::string folder = CommonFolder();
  CotuneOptions cotune = options.cotune;
  cotune.collectives = CollectivesOf(options);
  cotune.sizes_bytes = options.sizes_bytes;
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(MakeCotune(cotune));
  contenders.push_back(MakeOpenMpi("openmpi"));
  contenders.push_back(MakeGloo(folder, "lo"));
  MeasureSideBySide(options, std::move(contenders));
  MPI_Barrier(MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::filesystem::remove_all(folder);
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace cotune::bench

int main(int argc, char** argv) {
  using namespace cotune::bench;
  Options options;
  // Beside this program where Bazel lays out what it needs.
  options.cotune.plugin_path = OwnPath() + ".runfiles/cotune/plugins/host";
  CLI::App app("cotune beside Open MPI and Gloo on host memory.");
  app.add_option("--ranks", options.ranks, "numbers of processes")->delimiter(',');
  app.add_option("--collective", options.collectives)
      ->delimiter(',')
      ->check(CLI::IsMember(Collectives()));
  app.add_option("--sizes", options.sizes_bytes, "bytes, at least 4")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{4}, uint64_t{1} << 32));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--db", options.cotune.database_path,
                 "tuned database: read and added to by cotune");
  app.add_option("--plugin-path", options.cotune.plugin_path, "folder of cotune_host.so");
  CLI11_PARSE(app, argc, argv);
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return RunRank(options);
  std::vector<std::string> command = {OwnPath()};
  command.insert(command.end(), argv + 1, argv + argc);
  for (const int ranks : options.ranks) {
    if (const int code = RunMpirun(ranks, {}, command); code != 0) return code;
  }
  return 0;
}
