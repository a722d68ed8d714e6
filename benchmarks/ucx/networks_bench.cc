// cotune's algorithms over UCX beside Open MPI and Gloo: on one host, there also beside the host
// backend, and between networks with and without delay.
//
//   networks_bench --ranks 2,4 --delays-us 0,100 --sizes 64,64K --collective all_reduce
//
// Networks are namespaces, which README.md describes. In each world mpirun starts this program
// twice: Open MPI sends by itself (ob1) and by UCX. cotune tunes in the first run and reads that in
// the second. side_by_side.h says how the contenders are measured. With a file in BENCHMARK_OUT the
// same as JSON, a line for each cell.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "benchmarks/host/mpirun.h"
#include "benchmarks/ucx/played_host.h"
#include "benchmarks/ucx/rank.h"
#include "benchmarks/ucx/world.h"

namespace cotune::bench {
namespace {

constexpr char kAgent[] = "--agent";
constexpr int kNothingMeasured = 3;

struct Options {
  Options() {
    rank.sizes_bytes = {64, 256, 1024, 4096, 16384, 65536, 1 << 18, 1 << 20, 4 << 20, 16 << 20};
    rank.rounds = 5;
    rank.min_calls = 2;
    rank.tune_seconds = 300;
    rank.plugins = OwnPath() + ".runfiles/cotune/plugins";
  }

  RankOptions rank;
  std::vector<int> ranks = {2, 4};
  std::vector<int64_t> delays_us = {0, 100, 1000};
  double sample_ms = 20;
  bool only_one_host = false;
  bool only_networks = false;
};

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("--ranks", options.ranks, "numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(2, 64));
  app.add_option("--delays-us", options.delays_us, "delays of links between networks")
      ->delimiter(',')
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--collective", options.rank.collectives)
      ->delimiter(',')
      ->check(CLI::IsMember(Collectives()));
  app.add_option("--sizes", options.rank.sizes_bytes, "bytes, at least 4; 64K, 16M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", options.rank.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--sample-ms", options.sample_ms, "of a sample, which has two calls at least")
      ->check(CLI::Range(0.1, 10'000.0));
  app.add_option("--tune-seconds", options.rank.tune_seconds, "budget of each tune of cotune")
      ->check(CLI::Range(0.1, 36'000.0));
  app.add_option("--set", options.rank.settings,
                 "settings of cotune's backend ucx, rndv_thresh=inf");
  app.add_option("--plugins", options.rank.plugins, "folder of the folders host and ucx");
  auto* const one_host = app.add_flag("--one-host", options.only_one_host, "one host alone");
  app.add_flag("--networks", options.only_networks, "networks alone")->excludes(one_host);
}

// These arguments are for the ranks, which mpirun starts from this program.
void AddRankOptions(CLI::App& app, RankOptions& rank) {
  for (CLI::Option* option : {app.add_option("--rank-pml", rank.pml),
                              app.add_option("--rank-delay-us", rank.world.delay_us),
                              app.add_option("--rank-ranks", rank.world.ranks),
                              app.add_option("--rank-is-one-host", rank.world.is_one_host),
                              app.add_option("--rank-database-folder", rank.database_folder)}) {
    option->group("");
  }
}

std::vector<World> WorldsOf(const Options& options) {
  std::vector<World> worlds;
  for (const int ranks : options.ranks) {
    if (!options.only_networks) worlds.push_back({.is_one_host = true, .ranks = ranks});
    if (options.only_one_host) continue;
    for (const int64_t delay_us : options.delays_us) {
      worlds.push_back({.is_one_host = false, .delay_us = delay_us, .ranks = ranks});
    }
  }
  return worlds;
}

Launch LaunchOf(const World& world, const std::string& pml, const std::string& folder,
                const std::vector<std::string>& arguments) {
  Launch launch{.flags = OpenMpiFlags(world, pml), .command = {OwnPath()}};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  for (const std::string& word :
       {"--rank-pml=" + pml, "--rank-delay-us=" + std::to_string(world.delay_us),
        "--rank-ranks=" + std::to_string(world.ranks),
        "--rank-is-one-host=" + std::string(world.is_one_host ? "true" : "false"),
        "--rank-database-folder=" + folder}) {
    launch.command.push_back(word);
  }
  return launch;
}

std::string RunBoth(const World& world, const std::vector<std::string>& arguments) {
  char folder[] = "/tmp/networks_bench.XXXXXX";
  if (mkdtemp(folder) == nullptr) return "cannot make a folder in /tmp";
  std::string wrong = RunInWorld(
      world, folder,
      {LaunchOf(world, "ob1", folder, arguments), LaunchOf(world, "ucx", folder, arguments)});
  std::filesystem::remove_all(folder);
  return wrong;
}

// A world that cannot be had, or fails, does not keep the others from being measured.
int RunAllWorlds(const Options& options, const std::vector<std::string>& arguments) {
  int measured = 0;
  int failed = 0;
  for (const World& world : WorldsOf(options)) {
    if (const std::string why = WhyNot(world); !why.empty()) {
      std::printf("\n%s: left out, cannot be had here: %s\n", TitleOf(world).c_str(), why.c_str());
      continue;
    }
    std::printf("\n%s, %d ranks\n", TitleOf(world).c_str(), world.ranks);
    std::fflush(stdout);
    if (const std::string wrong = RunBoth(world, arguments); !wrong.empty()) {
      std::fprintf(stderr, "networks_bench: %s\n", wrong.c_str());
      ++failed;
      continue;
    }
    ++measured;
  }
  if (failed > 0) return 1;
  return measured > 0 ? 0 : kNothingMeasured;
}

// "--agent FOLDER HOST WORD...": as ssh runs "HOST WORD...".
int RunAgent(const std::vector<std::string>& words) {
  std::string command;
  for (size_t i = 4; i < words.size(); ++i) command += (i > 4 ? " " : "") + words[i];
  return RunOnHost(words[2], words[3], command);
}

}  // namespace
}  // namespace cotune::bench

int main(int argc, char** argv) {
  using namespace cotune::bench;
  const std::vector<std::string> words(argv, argv + argc);
  if (argc > 4 && words[1] == kAgent) return RunAgent(words);
  Options options;
  CLI::App app("cotune over UCX beside Open MPI and Gloo, on one host and between networks.");
  AddOptions(app, options);
  AddRankOptions(app, options.rank);
  CLI11_PARSE(app, argc, argv);
  options.rank.sample_seconds = options.sample_ms / 1e3;
  if (!options.rank.pml.empty()) return RunRank(options.rank);
  return RunAllWorlds(options, {words.begin() + 1, words.end()});
}
