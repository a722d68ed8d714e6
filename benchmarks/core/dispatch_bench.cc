// How long a dispatch lookup takes. Goal: 20 ns or less.
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/selection/dispatch_table.h"

namespace cotune {
namespace {

ChoiceId IdOf(uint64_t algorithm) {
  return ChoiceId::Parse("host/algorithm" + std::to_string(algorithm) + "?chunk=65536").value();
}

// Every collective, dtype, reduction and placement: a full table of one group.
std::vector<DispatchRow> FullRows(size_t ranges_per_row) {
  std::mt19937_64 random(1);
  std::vector<DispatchRow> rows;
  for (Collective collective : AllCollectives()) {
    for (Dtype dtype : AllDtypes()) {
      for (Reduction reduction : AllReductions()) {
        for (bool in_place : {false, true}) {
          DispatchKey key;
          key.collective = collective;
          key.dtype = dtype;
          key.reduction = Reduces(collective) ? reduction : Reduction::kNone;
          key.in_place = in_place;
          if (!Reduces(collective) && reduction != Reduction::kSum) continue;
          std::vector<std::pair<uint64_t, ChoiceId>> winners;
          for (size_t i = 0; i < ranges_per_row; ++i) {
            winners.emplace_back(uint64_t{256} << i, IdOf(2 * (random() % 3) + i % 2));
          }
          rows.push_back({key, MergeRanges(winners)});
        }
      }
    }
  }
  return rows;
}

// Argument: ranges in each row. Keys and sizes are mixed, so that nothing is predicted from the
// call before.
void BM_DispatchLookup(benchmark::State& state) {
  const std::vector<DispatchRow> rows = FullRows(static_cast<size_t>(state.range(0)));
  const DispatchTable table = DispatchTable::Build(rows).value();
  struct Call {
    DispatchKey key;
    uint64_t bytes;
  };
  std::mt19937_64 random(2);
  std::vector<Call> calls(4096);
  for (Call& call : calls) {
    call = {rows[random() % rows.size()].key, random() >> (24 + random() % 40)};
  }
  size_t next = 0;
  for (auto _ : state) {
    const Call& call = calls[next++ % calls.size()];
    benchmark::DoNotOptimize(table.Lookup(call.key, call.bytes));
  }
  state.counters["rows"] = static_cast<double>(rows.size());
}
BENCHMARK(BM_DispatchLookup)->Arg(1)->Arg(8)->Arg(24);

// One program calls one collective over and over.
void BM_DispatchLookupSameCall(benchmark::State& state) {
  const std::vector<DispatchRow> rows = FullRows(8);
  const DispatchTable table = DispatchTable::Build(rows).value();
  DispatchKey key = rows.front().key;
  uint64_t bytes = 65536;
  for (auto _ : state) {
    benchmark::DoNotOptimize(key);
    benchmark::DoNotOptimize(bytes);
    benchmark::DoNotOptimize(table.Lookup(key, bytes));
  }
}
BENCHMARK(BM_DispatchLookupSameCall);

// The calls of a graph: programs, each at sizes of its own, among the rows of plain collectives.
void BM_DispatchLookupProgram(benchmark::State& state) {
  std::vector<DispatchRow> rows = FullRows(8);
  const std::vector<SizeRange> ranges = rows.front().ranges;
  std::mt19937_64 random(3);
  std::vector<DispatchKey> keys(64);
  for (DispatchKey& key : keys) {
    key = rows.front().key;
    key.program_digest = random();
    rows.push_back({key, ranges});
  }
  const DispatchTable table = DispatchTable::Build(rows).value();
  // Drawn before the clock runs.
  std::vector<uint64_t> sizes_bytes(4096);
  for (size_t i = 0; i < sizes_bytes.size(); ++i) sizes_bytes[i] = random() >> (24 + i % 40);
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        table.Lookup(keys[next % keys.size()], sizes_bytes[next % sizes_bytes.size()]));
    ++next;
  }
}
BENCHMARK(BM_DispatchLookupProgram);

// Calls without a row of their own: only sums of f32 out of place are tuned.
void BM_DispatchLookupRelative(benchmark::State& state) {
  std::vector<DispatchRow> rows = FullRows(8);
  std::vector<DispatchKey> keys;
  for (const DispatchRow& row : rows) keys.push_back(row.key);
  std::erase_if(rows, [](const DispatchRow& row) {
    return row.key.dtype != Dtype::kF32 || row.key.in_place ||
           (row.key.reduction != Reduction::kNone && row.key.reduction != Reduction::kSum);
  });
  const DispatchTable table = DispatchTable::Build(rows).value();
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        table.Lookup(keys[next * 7919 % keys.size()], uint64_t{1} << (10 + next % 20)));
    ++next;
  }
  state.counters["rows"] = static_cast<double>(rows.size());
}
BENCHMARK(BM_DispatchLookupRelative);

void BM_DispatchLookupMiss(benchmark::State& state) {
  const DispatchTable table = DispatchTable::Build(FullRows(8)).value();
  DispatchKey key;
  key.program_digest = 42;
  for (auto _ : state) {
    benchmark::DoNotOptimize(key);
    benchmark::DoNotOptimize(table.Lookup(key, 4096));
  }
}
BENCHMARK(BM_DispatchLookupMiss);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
