// Times every choice of the host backend on real processes.
//
//   host_collectives_bench --ranks 4 --collective all_reduce --sizes 64,4096,1048576 --dtype f32
//
// Columns: bytes, choice, time in microseconds (median over rounds of the slowest rank's mean), bus
// bandwidth in GB/s by the formulas of nccl-tests. One line a choice; the backend's default is
// marked.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "plugins/host/backend.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

constexpr int kRounds = 7;
constexpr int64_t kRoundNs = 20'000'000;
constexpr int64_t kDeadlineNs = 600 * kSecondNs;

struct Options {
  int ranks = 2;
  std::string collective = "all_reduce";
  std::string dtype = "f32";
  std::vector<uint64_t> sizes = {64, 1024, 16384, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  bool default_only = false;
};

const std::map<std::string, uint32_t> kCollectives = {{"all_reduce", COTUNE_ALL_REDUCE},
                                                      {"all_gather", COTUNE_ALL_GATHER},
                                                      {"reduce_scatter", COTUNE_REDUCE_SCATTER},
                                                      {"all_to_all", COTUNE_ALL_TO_ALL},
                                                      {"broadcast", COTUNE_BROADCAST}};
const std::map<std::string, cotune_dtype_t> kTypes = {
    {"f32", {COTUNE_DTYPE_FLOAT, 32, 1}}, {"f64", {COTUNE_DTYPE_FLOAT, 64, 1}},
    {"f16", {COTUNE_DTYPE_FLOAT, 16, 1}}, {"bf16", {COTUNE_DTYPE_BFLOAT, 16, 1}},
    {"i32", {COTUNE_DTYPE_INT, 32, 1}},   {"i64", {COTUNE_DTYPE_INT, 64, 1}},
    {"u8", {COTUNE_DTYPE_UINT, 8, 1}}};

cotune_problem_t ProblemOf(const Options& options, uint64_t bytes) {
  const uint32_t collective = kCollectives.at(options.collective);
  const cotune_dtype_t dtype = kTypes.at(options.dtype);
  const bool has_blocks = collective != COTUNE_ALL_REDUCE && collective != COTUNE_BROADCAST;
  const uint64_t blocks = has_blocks ? static_cast<uint64_t>(options.ranks) : 1;
  const bool reduces = collective == COTUNE_ALL_REDUCE || collective == COTUNE_REDUCE_SCATTER;
  return AbiProblem(collective, dtype, reduces ? COTUNE_SUM : COTUNE_REDUCTION_NONE,
                    bytes / (dtype.bits / 8) / blocks, options.ranks);
}

double BusFactor(uint32_t collective, double ranks) {
  if (collective == COTUNE_ALL_REDUCE) return 2 * (ranks - 1) / ranks;
  return collective == COTUNE_BROADCAST ? 1 : (ranks - 1) / ranks;
}

// Memory that all ranks share and write: rank r's time of the present round.
struct Times {
  double round_us[64];
};

class RankBench {
 public:
  RankBench(const Options& options, int rank, const GroupForTest& group, Times* times)
      : options_(options), rank_(rank), group_(group), times_(times) {
    const uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
    send_.assign(largest + 64, 1);
    receive_.assign(largest + 64, 0);
  }

  void Run() {
    for (const uint64_t bytes : options_.sizes) {
      const cotune_problem_t problem = ProblemOf(options_, bytes);
      for (const cotune_choice_t& choice : RunnableChoices(group_.backend(), problem)) {
        const bool is_default = (choice.flags & COTUNE_CHOICE_DEFAULT) != 0;
        if (!options_.default_only || is_default) Measure(problem, choice, is_default);
      }
    }
  }

 private:
  void Launch(cotune_plan_t* plan) {
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = send_.data();
    launch.recv = receive_.data();
    launch.stream = {COTUNE_STREAM_HOST, -1, nullptr};
    launch.deadline_ns = MonotonicNs() + kDeadlineNs;
    const cotune_backend_api_t& api = *BackendApi();
    cotune_error_t error = EmptyError();
    cotune_status_t status = api.launch(plan, &launch, &error);
    if (status == COTUNE_OK) status = api.progress(plan, launch.deadline_ns, &error);
    if (status != COTUNE_OK) {
      std::fprintf(stderr, "rank %d: %s\n", rank_, error.message);
      _exit(1);
    }
  }

  double MeanUs(cotune_plan_t* plan, int iterations) {
    Barrier();
    const int64_t begin_ns = MonotonicNs();
    for (int i = 0; i < iterations; ++i) Launch(plan);
    return static_cast<double>(MonotonicNs() - begin_ns) / 1e3 / iterations;
  }

  void Barrier() { Exchange(0); }

  // Every rank's value arrives at every rank; returns the largest.
  double Exchange(double value) {
    times_->round_us[rank_] = value;
    uint32_t in = 1;
    uint32_t out = 0;
    const cotune_problem_t problem =
        AbiProblem(COTUNE_ALL_REDUCE, {COTUNE_DTYPE_INT, 32, 1}, COTUNE_SUM, 1, options_.ranks);
    const std::string name = RunnableChoices(group_.backend(), problem).front().name;
    double largest = 0;
    for (int phase = 0; phase < 2; ++phase) {  // all have written; all have read
      cotune_error_t error = EmptyError();
      RunOnce(group_.group(), problem, name.c_str(), &in, &out, MonotonicNs() + kDeadlineNs,
              &error);
      if (phase == 0)
        largest = *std::max_element(times_->round_us, times_->round_us + options_.ranks);
    }
    return largest;
  }

  void Measure(const cotune_problem_t& problem, const cotune_choice_t& choice, bool is_default) {
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    if (BackendApi()->prepare(group_.group(), &problem, choice.name, 0, &plan, &error) !=
        COTUNE_OK) {
      std::fprintf(stderr, "rank %d: %s\n", rank_, error.message);
      _exit(1);
    }
    const double first_us = Exchange(MeanUs(plan, 3));
    const int iterations = std::clamp(static_cast<int>(kRoundNs / 1e3 / first_us), 3, 20000);
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) rounds.push_back(Exchange(MeanUs(plan, iterations)));
    BackendApi()->plan_destroy(plan);
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    const double us = rounds[kRounds / 2];
    const double bus = static_cast<double>(problem.bytes) / us / 1e3 *
                       BusFactor(problem.collective, problem.world_size);
    if (rank_ == 0) {
      std::printf("%10llu  %-28s %10.2f us %8.2f GB/s%s\n",
                  static_cast<unsigned long long>(problem.bytes), choice.name, us, bus,
                  is_default ? "  default" : "");
      std::fflush(stdout);
    }
  }

  const Options& options_;
  int rank_;
  const GroupForTest& group_;
  Times* times_;
  std::vector<char> send_;
  std::vector<char> receive_;
};

}  // namespace
}  // namespace cotune::host

int main(int argc, char** argv) {
  using namespace cotune::host;
  Options options;
  CLI::App app("Times every choice of the host backend on real processes.");
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(1, 64));
  app.add_option("--collective", options.collective)->check(CLI::IsMember(kCollectives));
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember(kTypes));
  app.add_option("--sizes", options.sizes, "bytes, separated by commas")->delimiter(',');
  app.add_flag("--default-only", options.default_only, "only what the backend itself would pick");
  CLI11_PARSE(app, argc, argv);
  JobForTest job;
  auto* times = static_cast<Times*>(
      mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (times == MAP_FAILED) return 1;
  RankProcesses ranks(options.ranks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "bench", rank, AllRanks(options.ranks),
                       MonotonicNs() + kDeadlineNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    RankBench(options, rank, group, times).Run();
    return "";
  });
  const std::string failures = ranks.WaitAll();
  std::fputs(failures.c_str(), stderr);
  return failures.empty() ? 0 : 1;
}
