// cotune's tuned table beside Open MPI and Gloo on host memory, in one run, on f32.
//
//   peers_bench --ranks 2,4 --sizes 64,4096,1048576 --collective all_reduce,broadcast
//
// Starts itself by mpirun once for each number of ranks, bound to cores as mpirun does by itself.
// cotune tunes first. Then, for each
// collective and size, rounds in which the contenders take turns: a barrier, calls back to back for
// some milliseconds, the largest mean over the ranks. A time is the median over the rounds. Values
// are compared with what is right before. bytes is the larger of one rank's send and receive
// buffer. With a file in BENCHMARK_OUT the same as JSON, a line for each cell.
#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {
namespace {

constexpr double kSampleSeconds = 0.02;
constexpr int kMaxCalls = 4000;

const std::map<std::string, cotune_collective> kCollectives = {
    {"all_reduce", COTUNE_COLLECTIVE_ALL_REDUCE},
    {"all_gather", COTUNE_COLLECTIVE_ALL_GATHER},
    {"reduce_scatter", COTUNE_COLLECTIVE_REDUCE_SCATTER},
    {"all_to_all", COTUNE_COLLECTIVE_ALL_TO_ALL},
    {"broadcast", COTUNE_COLLECTIVE_BROADCAST}};

struct Options {
  std::vector<int> ranks = {2, 4};
  std::vector<std::string> collectives = {"all_reduce", "all_gather", "reduce_scatter",
                                          "all_to_all", "broadcast"};
  std::vector<uint64_t> sizes_bytes = {64,      256,     1024,    4096,     16384,   65536,
                                       1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  int rounds = 9;
  std::string database_path;  // empty: what cotune tuned is not kept
};

double LargestOverRanks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Small integers, different for each rank and element.
float ValueOf(int rank, uint64_t index) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 7 + index * 3) % 11);
}

float Expected(const Workload& w, uint64_t index) {
  const auto own = static_cast<uint64_t>(w.rank) * w.count;
  switch (w.collective) {
    case COTUNE_COLLECTIVE_ALL_GATHER:
      return ValueOf(static_cast<int>(index / w.count), index % w.count);
    case COTUNE_COLLECTIVE_ALL_TO_ALL:
      return ValueOf(static_cast<int>(index / w.count), own + index % w.count);
    case COTUNE_COLLECTIVE_BROADCAST:
      return ValueOf(0, index);
    default:
      break;
  }
  const uint64_t at = w.collective == COTUNE_COLLECTIVE_REDUCE_SCATTER ? own + index : index;
  float sum = 0;
  for (int rank = 0; rank < w.world_size; ++rank) sum += ValueOf(rank, at);
  return sum;
}

class Bench {
 public:
  Bench(const Options& options, std::vector<std::unique_ptr<Contender>> contenders)
      : options_(options), contenders_(std::move(contenders)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
    const uint64_t largest =
        *std::max_element(options.sizes_bytes.begin(), options.sizes_bytes.end());
    send_.resize(largest / sizeof(float) + 64);
    recv_.resize(send_.size());
    if (const char* path = std::getenv("BENCHMARK_OUT"); path != nullptr && rank_ == 0) {
      json_.open(path, std::ios::app);
      if (!json_) Die(std::string("cannot write ") + path);
    }
  }

  void Run() {
    for (const std::string& name : options_.collectives) {
      if (rank_ == 0) PrintHead(name);
      for (const uint64_t bytes : options_.sizes_bytes) Measure(name, WorkloadOf(name, bytes));
    }
  }

 private:
  Workload WorkloadOf(const std::string& name, uint64_t bytes) {
    Workload w;
    w.collective = kCollectives.at(name);
    w.rank = rank_;
    w.world_size = world_size_;
    w.send = send_.data();
    w.recv = recv_.data();
    w.count = 1;
    const uint64_t elements = std::max(w.SendElements(), w.RecvElements());
    w.count = std::max<uint64_t>(1, bytes / sizeof(float) / elements);
    return w;
  }

  void Check(Contender& contender, const Workload& w) {
    for (uint64_t i = 0; i < w.SendElements(); ++i) send_[i] = ValueOf(w.rank, i);
    std::fill_n(recv_.begin(), w.RecvElements(), -1.0f);
    if (w.collective == COTUNE_COLLECTIVE_BROADCAST && w.rank == 0) {
      std::copy_n(send_.begin(), w.count, recv_.begin());
    }
    contender.Run();
    for (uint64_t i = 0; i < w.RecvElements(); ++i) {
      if (recv_[i] == Expected(w, i)) continue;
      Die(contender.Name() + " is wrong on rank " + std::to_string(w.rank) + " at element " +
          std::to_string(i) + " of " + std::to_string(w.RecvElements()));
    }
  }

  double SampleSeconds(Contender& contender, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) contender.Run();
    return LargestOverRanks(MPI_Wtime() - begin) / calls;
  }

  void Measure(const std::string& collective, const Workload& w) {
    std::vector<int> calls;
    for (const auto& each : contenders_) {
      each->Prepare(w);
      Check(*each, w);
      // A hiccup in the first calls must not make the samples short.
      double call = INFINITY;
      for (int i = 0; i < 3; ++i) call = std::min(call, SampleSeconds(*each, 4));
      calls.push_back(std::clamp(static_cast<int>(kSampleSeconds / call), 4, kMaxCalls));
    }
    std::vector<std::vector<double>> samples(contenders_.size());
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < contenders_.size(); ++i) {
        const size_t at = (i + static_cast<size_t>(round)) % contenders_.size();
        samples[at].push_back(SampleSeconds(*contenders_[at], calls[at]) * 1e6);
      }
    }
    for (auto& each : samples) std::sort(each.begin(), each.end());
    if (rank_ == 0) Print(collective, w, samples);
  }

  void PrintHead(const std::string& collective) const {
    std::printf("\n%s f32%s, %d ranks\n%12s", collective.c_str(),
                collective.find("reduce") == std::string::npos ? "" : " sum", world_size_, "bytes");
    for (const auto& each : contenders_) std::printf("%12s", (each->Name() + "_us").c_str());
    std::printf("  of_best  winner\n");
  }

  void Print(const std::string& collective, const Workload& w,
             const std::vector<std::vector<double>>& samples) {
    const uint64_t bytes = std::max(w.SendElements(), w.RecvElements()) * sizeof(float);
    nlohmann::json line = {{"collective", collective},
                           {"dtype", "f32"},
                           {"ranks", world_size_},
                           {"bytes", bytes},
                           {"winner", contenders_[0]->Chosen()}};
    std::printf("%12llu", static_cast<unsigned long long>(bytes));
    double best = INFINITY;
    for (size_t i = 0; i < samples.size(); ++i) {
      const double median = samples[i][samples[i].size() / 2];
      std::printf("%12.2f", median);
      if (i > 0) best = std::min(best, median);
      line["us"][contenders_[i]->Name()] = samples[i];
    }
    const double of_best = samples[0][samples[0].size() / 2] / best;
    std::printf("%9.2f  %s\n", of_best, line["winner"].get<std::string>().c_str());
    std::fflush(stdout);
    if (json_.is_open()) json_ << line << std::endl;
  }

  const Options& options_;
  std::vector<std::unique_ptr<Contender>> contenders_;
  int rank_ = 0;
  int world_size_ = 1;
  std::vector<float> send_;
  std::vector<float> recv_;
  std::ofstream json_;
};

// Made by rank 0, known to all.
std::string CommonFolder(int rank) {
  std::array<char, 64> path{};
  if (rank == 0) {
    std::strcpy(path.data(), "/tmp/peers_bench.XXXXXX");
    if (mkdtemp(path.data()) == nullptr) Die("cannot make a folder in /tmp");
  }
  MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  return path.data();
}

int RunRank(const Options& options, const std::string& plugin_path) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  std::vector<cotune_collective> collectives;
  for (const std::string& each : options.collectives) collectives.push_back(kCollectives.at(each));
  const std::string folder = CommonFolder(rank);
  {
    std::vector<std::unique_ptr<Contender>> contenders;
    contenders.push_back(
        MakeCotune(plugin_path, collectives, options.sizes_bytes, options.database_path));
    contenders.push_back(MakeOpenMpi());
    contenders.push_back(MakeGloo(rank, world_size, folder));
    Bench(options, std::move(contenders)).Run();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::filesystem::remove_all(folder);
  MPI_Finalize();
  return 0;
}

// Replaces a child by mpirun with this program; its exit code.
int RunUnderMpirun(int ranks, char** argv) {
  const pid_t child = fork();
  if (child < 0) Die("cannot fork");
  if (child == 0) {
    const std::string count = std::to_string(ranks);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<const char*> words = {"mpirun", "--allow-run-as-root", "--oversubscribe",
                                      "-n",     count.c_str(),         self.c_str()};
    for (char** each = argv + 1; *each != nullptr; ++each) words.push_back(*each);
    words.push_back(nullptr);
    execvp(words[0], const_cast<char**>(words.data()));
    Die("cannot start mpirun (Debian: openmpi-bin)");
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace cotune::bench

int main(int argc, char** argv) {
  using namespace cotune::bench;
  Options options;
  // Beside this program where Bazel lays out what it needs.
  std::string plugin_path =
      std::filesystem::read_symlink("/proc/self/exe").string() + ".runfiles/cotune/plugins/host";
  CLI::App app("cotune beside Open MPI and Gloo on host memory.");
  app.add_option("--ranks", options.ranks, "numbers of processes")->delimiter(',');
  app.add_option("--collective", options.collectives)
      ->delimiter(',')
      ->check(CLI::IsMember(kCollectives));
  app.add_option("--sizes", options.sizes_bytes, "bytes, at least 4")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{4}, uint64_t{1} << 32));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--db", options.database_path, "tuned database: read and added to by cotune");
  app.add_option("--plugin-path", plugin_path, "folder of cotune_host.so");
  CLI11_PARSE(app, argc, argv);
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return RunRank(options, plugin_path);
  for (const int ranks : options.ranks) {
    if (const int code = RunUnderMpirun(ranks, argv); code != 0) return code;
  }
  return 0;
}
