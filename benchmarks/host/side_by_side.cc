#include "benchmarks/host/side_by_side.h"

#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace cotune::bench {
namespace {

constexpr int kMaxCalls = 4000;

double LargestOverRanks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

double Median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

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

class SideBySide {
 public:
  SideBySide(const SideBySideOptions& options, std::vector<std::unique_ptr<Contender>> contenders)
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
  // Each contender has a list of times, which is sorted.
  using Samples = std::vector<std::vector<double>>;

  Workload WorkloadOf(const std::string& name, uint64_t bytes) {
    Workload w;
    w.collective = Collectives().at(name);
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

  int CallsOfSample(Contender& contender) {
    // A hiccup in the first calls must not make the samples short.
    double call = INFINITY;
    for (int i = 0; i < 3; ++i) {
      call = std::min(call, SampleSeconds(contender, options_.min_calls));
      if (call > options_.sample_seconds) return options_.min_calls;
    }
    return std::clamp(static_cast<int>(options_.sample_seconds / call), options_.min_calls,
                      kMaxCalls);
  }

  void Measure(const std::string& collective, const Workload& w) {
    std::vector<int> calls;
    for (const auto& each : contenders_) {
      each->Prepare(w);
      Check(*each, w);
      calls.push_back(CallsOfSample(*each));
    }
    Samples samples(contenders_.size());
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < contenders_.size(); ++i) {
        const size_t at = (i + static_cast<size_t>(round)) % contenders_.size();
        samples[at].push_back(SampleSeconds(*contenders_[at], calls[at]) * 1e6);
      }
    }
    for (auto& each : samples) std::sort(each.begin(), each.end());
    if (rank_ != 0) return;
    Print(w, samples);
    if (json_.is_open()) json_ << JsonOf(collective, w, samples) << std::endl;
  }

  void PrintHead(const std::string& collective) const {
    std::printf("\n%s f32%s, %d ranks%s\n%12s", collective.c_str(),
                collective.find("reduce") == std::string::npos ? "" : " sum", world_size_,
                options_.title.c_str(), "bytes");
    for (const auto& each : contenders_) std::printf("%18s", (each->Name() + "_us").c_str());
    std::printf("  of_best  winner\n");
  }

  static uint64_t BytesOf(const Workload& w) {
    return std::max(w.SendElements(), w.RecvElements()) * sizeof(float);
  }

  void Print(const Workload& w, const Samples& samples) {
    std::printf("%12llu", static_cast<unsigned long long>(BytesOf(w)));
    double own = INFINITY;
    double peer = INFINITY;
    std::string winner;
    for (size_t i = 0; i < samples.size(); ++i) {
      const double median = Median(samples[i]);
      std::printf("%18.2f", median);
      if (contenders_[i]->IsPeer()) {
        peer = std::min(peer, median);
      } else if (median < own) {
        own = median;
        winner = contenders_[i]->Chosen();
      }
    }
    std::printf("%9.2f  %s\n", own / peer, winner.c_str());
    std::fflush(stdout);
  }

  nlohmann::json JsonOf(const std::string& collective, const Workload& w, const Samples& samples) {
    nlohmann::json line = options_.labels;
    line["collective"] = collective;
    line["dtype"] = "f32";
    line["ranks"] = world_size_;
    line["bytes"] = BytesOf(w);
    line["winner"] = contenders_[0]->Chosen();
    line["algorithms_us"] = nlohmann::json::object();
    for (size_t i = 0; i < samples.size(); ++i) {
      Contender& contender = *contenders_[i];
      line["us"][contender.Name()] = samples[i];
      if (contender.IsPeer()) continue;
      line["winners"][contender.Name()] = contender.Chosen();
      line["algorithms_us"].update(contender.AlgorithmTimes());
    }
    return line;
  }

  const SideBySideOptions& options_;
  std::vector<std::unique_ptr<Contender>> contenders_;
  int rank_ = 0;
  int world_size_ = 1;
  std::vector<float> send_;
  std::vector<float> recv_;
  std::ofstream json_;
};

}  // namespace

const std::map<std::string, cotune_collective>& Collectives() {
  static const auto* const collectives = new std::map<std::string, cotune_collective>{
      {"all_reduce", COTUNE_COLLECTIVE_ALL_REDUCE},
      {"all_gather", COTUNE_COLLECTIVE_ALL_GATHER},
      {"reduce_scatter", COTUNE_COLLECTIVE_REDUCE_SCATTER},
      {"all_to_all", COTUNE_COLLECTIVE_ALL_TO_ALL},
      {"broadcast", COTUNE_COLLECTIVE_BROADCAST}};
  return *collectives;
}

std::vector<cotune_collective> CollectivesOf(const SideBySideOptions& options) {
  std::vector<cotune_collective> collectives;
  for (const std::string& each : options.collectives) {
    collectives.push_back(Collectives().at(each));
  }
  return collectives;
}

void MeasureSideBySide(const SideBySideOptions& options,
                       std::vector<std::unique_ptr<Contender>> contenders) {
  SideBySide(options, std::move(contenders)).Run();
}

std::string CommonFolder() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::array<char, 64> path{};
  if (rank == 0) {
    std::strcpy(path.data(), "/tmp/side_by_side.XXXXXX");
    if (mkdtemp(path.data()) == nullptr) Die("cannot make a folder in /tmp");
  }
  MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  return path.data();
}

}  // namespace cotune::bench
