// How long it takes from a tuned database file to a dispatch table. Goal: 5 ms or less for 10,000
// entries.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>

#include "benchmark/benchmark.h"
#include "core/database/tuned_database.h"

namespace cotune {
namespace {

constexpr int kEntries = 10'000;
constexpr const char* kAlgorithms[] = {"one_shot",         "two_shot",         "ring?chunk=16384",
                                       "ring?chunk=65536", "tree?chunk=16384", "tree?chunk=65536"};

// Makes the verdict of one choice after a tune: a default and a winner are measured to the end, the
// others are eliminated early.
Verdict VerdictOf(std::mt19937_64& random, size_t algorithm, size_t samples, int64_t median_ns) {
  Verdict verdict{.id = ChoiceId::Parse(std::string("host/") + kAlgorithms[algorithm]).value()};
  verdict.is_default = algorithm == 0;
  verdict.outcome = samples < 50 ? Outcome::kOutpaced : Outcome::kTimed;
  for (size_t i = 0; i < samples; ++i) {
    verdict.samples_ns.push_back(median_ns + static_cast<int64_t>(random() % 2000) - 1000);
    verdict.skews_ns.push_back(static_cast<int64_t>(random() % 5000));
  }
  verdict.repetitions = 10;
  verdict.median_ns = median_ns;
  verdict.interval_low_ns = median_ns - 300;
  verdict.interval_high_ns = median_ns + 300;
  return verdict;
}

DatabaseEntry EntryOf(std::mt19937_64& random, const ProblemClass& cls, uint64_t count) {
  const size_t best = 1 + random() % 5;
  DatabaseEntry entry{
      .fingerprint = {{{"cores", "96"},
                       {"cpu_model", "a processor with a long name @ 2.60GHz"},
                       {"memory_kind", "host"},
                       {"numa_nodes", "2"}},
                      {{"host", "1.0.0"}},
                      "eager"},
      .cell = {},
      .winner = {.id = ChoiceId::Parse(std::string("host/") + kAlgorithms[best]).value()}};
  entry.cell.problem = {cls, count, 0x1234567890abcdef};
  for (size_t algorithm = 0; algorithm < 6; ++algorithm) {
    const bool to_the_end = algorithm == 0 || algorithm == best;
    entry.cell.verdicts.push_back(VerdictOf(random, algorithm, to_the_end ? 50 : 4,
                                            static_cast<int64_t>(20'000 + random() % 1'000'000)));
  }
  entry.cell.refusals = {{"cuda", "the buffers are host memory"}};
  entry.winner.median_ns = entry.cell.verdicts[best].median_ns;
  entry.winner.runner_up = entry.cell.verdicts[0].id;
  entry.winner.fallback = entry.cell.verdicts[0].id;
  for (size_t i = 0; i < kNextBestMax; ++i) {
    const size_t next = 1 + (best + i) % 5;
    entry.winner.next_best.push_back(entry.cell.verdicts[next].id);
  }
  entry.winner.why =
      std::to_string(random() % 100) + "." + std::to_string(random() % 10) +
      " % faster than the default host/one_shot (41.2 us); 99 % interval 34.1-36.0 us";
  entry.cotune_version = "0.1.0";
  entry.measured_unix_s = 1'700'000'000 + static_cast<int64_t>(random() % 100'000);
  return entry;
}

// 10,000 entries of one shape: sum, all dtypes, both placements, many sizes of each.
TunedDatabase FullDatabase() {
  std::mt19937_64 random(1);
  TunedDatabase database;
  const int classes = static_cast<int>(AllCollectives().size() * AllDtypes().size() * 2);
  const int sizes = kEntries / classes + 1;
  for (Collective collective : AllCollectives()) {
    for (Dtype dtype : AllDtypes()) {
      for (bool in_place : {false, true}) {
        ProblemClass cls;
        cls.collective = collective;
        cls.dtype = dtype;
        cls.in_place = in_place;
        cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
        cls.world_size = cls.ranks_per_node = 8;
        for (int i = 0; i < sizes && database.size() < kEntries; ++i) {
          database.Put(EntryOf(random, cls, static_cast<uint64_t>(i + 1) * 1024));
        }
      }
    }
  }
  return database;
}

// The database in a file of its own for the time of one benchmark.
class DatabaseFile {
 public:
  DatabaseFile() : database_(FullDatabase()) {
    std::string name = std::filesystem::temp_directory_path() / "database_bench_XXXXXX";
    folder_ = mkdtemp(name.data());
    saved_ = database_.Save(path());
  }
  ~DatabaseFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/t.tdb"; }
  const TunedDatabase& database() const { return database_; }
  const Status& saved() const { return saved_; }
  Fingerprint here() const { return *database_.rows().front().fingerprint; }

 private:
  TunedDatabase database_;
  std::string folder_;
  Status saved_;
};

// The goal's number: file to table.
void BM_LoadAndBuildTable(benchmark::State& state) {
  const DatabaseFile file;
  const Fingerprint here = file.here();
  size_t entries = 0;
  for (auto _ : state) {
    const Result<TunedDatabase> database = TunedDatabase::Load(file.path());
    if (!database) return state.SkipWithError(database.error().ToText().c_str());
    const Result<DispatchTable> table = database->BuildTable(8, 8, here);
    if (!table) return state.SkipWithError(table.error().ToText().c_str());
    benchmark::DoNotOptimize(table->Lookup(table->rows().front().key, 4096));
    entries = database->size();
  }
  state.counters["entries"] = static_cast<double>(entries);
  state.counters["file_bytes"] = static_cast<double>(std::filesystem::file_size(file.path()));
}
BENCHMARK(BM_LoadAndBuildTable)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  const DatabaseFile file;
  for (auto _ : state) benchmark::DoNotOptimize(TunedDatabase::Load(file.path()));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void BM_BuildTable(benchmark::State& state) {
  const DatabaseFile file;
  const TunedDatabase database = TunedDatabase::Load(file.path()).value();
  for (auto _ : state) benchmark::DoNotOptimize(database.BuildTable(8, 8, file.here()));
}
BENCHMARK(BM_BuildTable)->Unit(benchmark::kMillisecond);

void BM_Find(benchmark::State& state) {
  const DatabaseFile file;
  const TunedDatabase database = TunedDatabase::Load(file.path()).value();
  const Fingerprint here = file.here();
  size_t next = 0;
  for (auto _ : state) {
    const DatabaseRow& row = database.rows()[next++ * 7919 % database.size()];
    benchmark::DoNotOptimize(database.Find(row.problem, here));
  }
}
BENCHMARK(BM_Find)->Unit(benchmark::kMicrosecond);

void BM_Save(benchmark::State& state) {
  const DatabaseFile file;
  const TunedDatabase database = TunedDatabase::Load(file.path()).value();
  for (auto _ : state) {
    if (!database.Save(file.path())) return state.SkipWithError("not saved");
  }
}
BENCHMARK(BM_Save)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
