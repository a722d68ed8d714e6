// The control channel between real processes over the Unix socket: one barrier with records, and
// what agreeing on the collectives of a graph costs, met once for all nodes (deferred mode) or once
// for each node (immediate mode).
//
//   bazel run -c opt //benchmarks/sync:barrier_bench -- --benchmark_out=barrier.json
//   --benchmark_out_format=json
//
// This process is rank 0; the counters are of its calls, in microseconds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "sync/socket/socket_exchange.h"
#include "sync/testing/rank_processes.h"

namespace cotune::sync {
namespace {

constexpr int64_t kDeadlineNs = 60'000'000'000;
constexpr const char* kGoOn = "go on";

using Work = std::function<bool(RankExchange&)>;

SocketExchangeOptions Options(const PrivateDirectory& directory, int rank, int world_size) {
  SocketExchangeOptions options = OptionsForTest(directory, rank, world_size, kDeadlineNs);
  options.heartbeat_interval_ns = kHeartbeatIntervalNs;
  options.heartbeat_timeout_ns = kHeartbeatTimeoutNs;
  return options;
}

// Everybody meets; false when rank 0 says that it was enough.
bool GoOn(RankExchange& exchange, bool more) {
  const auto step = exchange.Step("next", more ? kGoOn : "", 0, NowNs() + kDeadlineNs);
  return step.has_value() && step->records[0] == kGoOn;
}

void Follow(const SocketExchangeOptions& options, const Work& work) {
  const MonotonicClock clock;
  auto exchange = ConnectSocketExchange(options, clock);
  if (!exchange) return;
  while (GoOn(**exchange, false) && work(**exchange)) {
  }
}

double AtFraction(std::vector<int64_t>& sorted_ns, double fraction) {
  const auto last = static_cast<double>(sorted_ns.size() - 1);
  return static_cast<double>(sorted_ns[static_cast<size_t>(fraction * last)]) * 1e-3;
}

// Times `work` on rank 0 while the other ranks, processes of their own, do the same.
void Measure(benchmark::State& state, int world_size, const Work& work) {
  const PrivateDirectory directory;
  Processes others;
  for (int rank = 1; rank < world_size; ++rank) {
    const SocketExchangeOptions options = Options(directory, rank, world_size);
    others.Start([&](Reporter&) { Follow(options, work); });
  }
  const MonotonicClock clock;
  auto exchange = ConnectSocketExchange(Options(directory, 0, world_size), clock);
  if (!exchange) return state.SkipWithError(exchange.error().ToText().c_str());
  std::vector<int64_t> samples_ns;
  for (auto iteration : state) {
    static_cast<void>(iteration);
    if (!GoOn(**exchange, true)) return state.SkipWithError("a rank was lost");
    const int64_t began_ns = clock.now_ns();
    if (!work(**exchange)) return state.SkipWithError("a rank was lost");
    samples_ns.push_back(clock.now_ns() - began_ns);
    state.SetIterationTime(static_cast<double>(samples_ns.back()) * 1e-9);
  }
  GoOn(**exchange, false);
  std::sort(samples_ns.begin(), samples_ns.end());
  state.counters["ranks"] = world_size;
  state.counters["p50_us"] = AtFraction(samples_ns, 0.50);
  state.counters["p99_us"] = AtFraction(samples_ns, 0.99);
}

void Barrier(benchmark::State& state) {
  Measure(state, static_cast<int>(state.range(0)), [](RankExchange& exchange) {
    return exchange.Step("barrier", "record of 16 by.", 0, NowNs() + kDeadlineNs).has_value();
  });
}
BENCHMARK(Barrier)->ArgName("ranks")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseManualTime()->Unit(
    benchmark::kMicrosecond);

// A pre-sync and an agreement about `entries` table entries.
bool Agree(RankExchange& exchange, int64_t entries) {
  const AgreedFields fields = {{"choices", std::string(64, 'd')}, {"settings", "default"}};
  const auto met = exchange.PreSync(fields, kDeadlineNs, NowNs() + kDeadlineNs);
  if (!met || !met->met) return false;
  const std::string table(exchange.rank() == 0 ? static_cast<size_t>(entries) * 200 : 0, 't');
  const auto agreed = exchange.Agree(
      table, [](std::string_view) { return true; }, NowNs() + kDeadlineNs);
  return agreed.has_value() && *agreed == AgreementOutcome::kCommitted;
}

void OneSyncForAllNodes(benchmark::State& state) {
  const int64_t nodes = state.range(1);
  Measure(state, static_cast<int>(state.range(0)),
          [nodes](RankExchange& exchange) { return Agree(exchange, nodes); });
}
BENCHMARK(OneSyncForAllNodes)
    ->ArgNames({"ranks", "nodes"})
    ->ArgsProduct({{2, 4, 8}, {3, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void OneSyncForEachNode(benchmark::State& state) {
  const int64_t nodes = state.range(1);
  Measure(state, static_cast<int>(state.range(0)), [nodes](RankExchange& exchange) {
    for (int64_t node = 0; node < nodes; ++node) {
      if (!Agree(exchange, 1)) return false;
    }
    return true;
  });
}
BENCHMARK(OneSyncForEachNode)
    ->ArgNames({"ranks", "nodes"})
    ->ArgsProduct({{2, 4, 8}, {3, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cotune::sync

BENCHMARK_MAIN();
