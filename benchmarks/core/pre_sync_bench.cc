// Measures what agreeing on a tune of programs and collectives costs, between processes on host
// memory: the comparison of nodes, the one pre-sync with its fields, the comparison of all choice
// lists, and the agreement on the table. Nothing is measured or made ready in between. Goal: 5 ms
// or less in all for 3 and for 16 nodes.
//
//   bazel run -c opt //benchmarks/core:pre_sync_bench -- --benchmark_out=pre_sync.json
//   --benchmark_out_format=json
//
// This process is rank 0; the counters are of its calls, in microseconds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/choice/multi_template.h"
#include "core/choice/winner_check.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/scheduler/pre_sync_fields.h"
#include "core/scheduler/tune_comparison.h"
#include "core/selection/measured_winners.h"
#include "fmt/format.h"
#include "integration/job.h"
#include "plugins/host/backend.h"
#include "sync/testing/rank_processes.h"

namespace cotune {
namespace {

constexpr int64_t kPatienceNs = 60'000'000'000;
constexpr const char* kGoOn = "go on";

using Nodes = std::vector<std::unique_ptr<MultiTemplate>>;

// residual + RMSNorm behind an all_reduce, and the norm between the halves of one.
std::string ProgramText(int kind, int columns) {
  const std::string inputs =
      fmt::format("%x = input bf16 [R, {0}]\n%gamma = input bf16 [1, {0}] replicated\n", columns);
  if (kind == 1) {
    return inputs +
           "%share = reduce_scatter sum %x\n%norm = rms_norm %share, %gamma\n"
           "%y = all_gather %norm\nreturn %y\n";
  }
  return inputs + fmt::format("%residual = input bf16 [R, {}] replicated\n", columns) +
         "%sum = all_reduce sum %x\n%stream = add %sum, %residual\n"
         "%y = rms_norm %stream, %gamma\nreturn %y, %stream into %residual\n";
}

// Two programs to each plain collective, no two alike.
Nodes MakeNodes(const Job& job, int count) {
  Nodes nodes;
  const std::vector<uint64_t> sizes = {64 << 10, 256 << 10, 1 << 20};
  for (int i = 0; i < count; ++i) {
    const int kind = i % 3;
    if (kind == 2) {
      const auto collective = AllCollectives()[static_cast<size_t>(i / 3) % 5];
      const ProblemClass cls =
          job.Class(collective, i < 15 ? Dtype::kBf16 : Dtype::kF32, Reduction::kSum);
      nodes.push_back(
          std::make_unique<MultiTemplate>(Program::SingleCollective(cls).value(), sizes, 7));
      continue;
    }
    const auto graph = ProgramGraph::Parse(ProgramText(kind, 1024 * (1 + i / 3)));
    const GroupShape group{MemoryKind::kHost, job.world_size(), job.places().ranks_per_host()};
    nodes.push_back(
        std::make_unique<MultiTemplate>(Program::Bind(*graph, group).value(), sizes, 7));
  }
  return nodes;
}

// With their choices, which a tune has listed before it compares them.
std::vector<CellToCheck> CellsOf(Job& job, const Nodes& nodes) {
  std::vector<CellToCheck> cells;
  for (const auto& node : nodes) {
    for (const uint64_t bytes : node->size_hints_bytes()) {
      cells.push_back(
          {&node->program(), node->ProblemAt(bytes), &node->ListChoices(job.groups(), bytes)});
    }
  }
  return cells;
}

// A table in which every cell has a winner.
std::string TableOf(const Job& job, const std::vector<CellToCheck>& cells) {
  MeasuredWinners winners;
  for (const CellToCheck& cell : cells) {
    const Result<Choice> choice = job.DefaultChoice(*cell.program, cell.problem);
    if (choice) winners.Put(DispatchKey::Of(cell.problem.cls), cell.problem.bytes(), choice->id);
  }
  return winners.BuildTable()->Serialize();
}

// How long the stages took on this rank.
using StageTimes = std::map<std::string, int64_t>;

class Stopwatch {
 public:
  Stopwatch(const Clock& clock, StageTimes& times)
      : clock_(clock), times_(times), began_ns_(clock.now_ns()) {}
  void Lap(const std::string& stage) {
    const int64_t now_ns = clock_.now_ns();
    times_[stage] = now_ns - began_ns_;
    began_ns_ = now_ns;
  }

 private:
  const Clock& clock_;
  StageTimes& times_;
  int64_t began_ns_;
};

// Agrees on the nodes; false when that fails.
bool Agree(Job& job, const Nodes& nodes, const std::vector<CellToCheck>& cells,
           const std::string& table, StageTimes& times) {
  RankExchange& exchange = job.exchange();
  const int64_t deadline_ns = job.clock().now_ns() + kPatienceNs;
  Stopwatch watch(job.clock(), times);
  const AgreedFields agreed_fields = {{"command", "bench"}};
  const AgreedFields of_tune = FieldsOfTune(agreed_fields, job.settings());
  if (!CompareTunes(exchange, of_tune, nodes, 0, deadline_ns)) return false;
  watch.Lap("nodes");
  const AgreedFields fields = PreSyncFields(agreed_fields, job.settings(), nodes);
  const auto met = exchange.PreSync(fields, kPatienceNs, deadline_ns);
  if (!met || !met->met) return false;
  watch.Lap("pre_sync");
  if (!CompareChoiceLists(exchange, job.groups(), cells, deadline_ns)) return false;
  watch.Lap("choice_lists");
  const auto agreed = exchange.Agree(
      job.rank() == 0 ? table : "", [&](std::string_view proposal) { return proposal == table; },
      deadline_ns);
  watch.Lap("agreement");
  return agreed.has_value() && *agreed == AgreementOutcome::kCommitted;
}

Result<std::unique_ptr<Job>> JoinJob(const sync::PrivateDirectory& directory, int rank,
                                     int world_size) {
  JobOptions options;
  options.context = {
      "bench", rank, world_size, rank, world_size, "pre_sync", directory.socket_path()};
  options.catalogue.tables = {host::BackendApi()};
  return Job::Join(options);
}

// Everybody meets; false when rank 0 says that it was enough.
bool GoOn(Job& job, bool more) {
  const auto step =
      job.exchange().Step("next", more ? kGoOn : "", 0, job.clock().now_ns() + kPatienceNs);
  return step.has_value() && step->records[0] == kGoOn;
}

void Follow(const sync::PrivateDirectory& directory, int rank, int world_size, int node_count) {
  const auto job = JoinJob(directory, rank, world_size);
  if (!job) return;
  const Nodes nodes = MakeNodes(**job, node_count);
  const std::vector<CellToCheck> cells = CellsOf(**job, nodes);
  const std::string table = TableOf(**job, cells);
  StageTimes times;
  while (GoOn(**job, false) && Agree(**job, nodes, cells, table, times)) {
  }
}

double AtFraction(std::vector<int64_t> samples_ns, double fraction) {
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto last = static_cast<double>(samples_ns.size() - 1);
  return static_cast<double>(samples_ns[static_cast<size_t>(fraction * last)]) * 1e-3;
}

void OneSyncForAllNodes(benchmark::State& state) {
  const auto world_size = static_cast<int>(state.range(0));
  const auto node_count = static_cast<int>(state.range(1));
  const sync::PrivateDirectory directory;
  sync::Processes others;
  for (int rank = 1; rank < world_size; ++rank) {
    others.Start([&, rank](sync::Reporter&) { Follow(directory, rank, world_size, node_count); });
  }
  const auto job = JoinJob(directory, 0, world_size);
  if (!job) return state.SkipWithError(job.error().ToText().c_str());
  const Nodes nodes = MakeNodes(**job, node_count);
  const std::vector<CellToCheck> cells = CellsOf(**job, nodes);
  const std::string table = TableOf(**job, cells);
  std::map<std::string, std::vector<int64_t>> samples_ns;
  for (auto iteration : state) {
    static_cast<void>(iteration);
    StageTimes times;
    if (!GoOn(**job, true) || !Agree(**job, nodes, cells, table, times)) {
      return state.SkipWithError("a rank was lost or differs");
    }
    int64_t all_ns = 0;
    for (const auto& [stage, time_ns] : times) {
      samples_ns[stage].push_back(time_ns);
      all_ns += time_ns;
    }
    samples_ns["all"].push_back(all_ns);
    state.SetIterationTime(static_cast<double>(all_ns) * 1e-9);
  }
  GoOn(**job, false);
  state.counters["ranks"] = world_size;
  state.counters["nodes"] = node_count;
  for (const auto& [stage, samples] : samples_ns) {
    state.counters[stage + "_p50_us"] = AtFraction(samples, 0.50);
  }
  state.counters["all_p99_us"] = AtFraction(samples_ns["all"], 0.99);
}
BENCHMARK(OneSyncForAllNodes)
    ->ArgNames({"ranks", "nodes"})
    ->ArgsProduct({{2, 4, 8}, {3, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
