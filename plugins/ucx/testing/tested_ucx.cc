// The description of this backend that the suites of all backends run by.
#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"
#include "plugins/ucx/backend.h"

namespace cotune::backend_test {
namespace {

constexpr int kRanks = 4;
constexpr uint64_t kCount = 3000;
constexpr uint64_t kManyCount = 100'000;  // does not travel at once
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};
constexpr cotune_dtype_t kI32 = {COTUNE_DTYPE_INT, 32, 1};

cotune_problem_t SumOf(cotune_dtype_t type, uint64_t count) {
  return AbiProblem(COTUNE_ALL_REDUCE, type, COTUNE_SUM, count, kRanks);
}

cotune_problem_t BroadcastFrom(int root) {
  return AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, root);
}

std::vector<Mismatch> Mismatches() {
  const cotune_problem_t sum = SumOf(kF32, kCount);
  return {
      {"Count", sum, "knomial?radix=2", SumOf(kF32, 10), "knomial?radix=2",
       "called all_reduce of 3000 f32 (sum)", "called all_reduce of 10 f32 (sum)"},
      {"LongCount", SumOf(kF32, kManyCount), "ring", SumOf(kF32, kManyCount + 1), "ring",
       "all_reduce of 100000 f32", "all_reduce of 100001 f32"},
      {"Type", sum, "scatter_gather?radix=2", SumOf(kI32, kCount), "scatter_gather?radix=2",
       "3000 f32", "3000 i32"},
      {"Reduction", sum, "ring", AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_MAX, kCount, kRanks),
       "ring", "(sum)", "(max)"},
      {"Collective", sum, "knomial?radix=4", AbiProblem(COTUNE_ALL_TO_ALL, kF32, 0, kCount, kRanks),
       "pairwise?posts=2", "all_reduce of 3000", "all_to_all of 3000"},
      {"NoElements", sum, "double_tree", SumOf(kF32, 0), "double_tree", "all_reduce of 3000",
       "calls with no elements"},
      {"Root", BroadcastFrom(0), "chain", BroadcastFrom(1), "chain", "from rank 0", "from rank 1"},
      {"Choice", sum, "knomial?radix=2", sum, "ring", "by another choice", "3000 f32"},
      {"Radix", sum, "knomial?radix=2", sum, "knomial?radix=4", "by another choice", "3000 f32"},
      {"Segments", SumOf(kF32, kManyCount), "ring", SumOf(kF32, kManyCount),
       "ring?posts=2&segment=65536", "by another choice", "100000 f32"}};
}

}  // namespace

const TestedBackend& Tested() {
  static const TestedBackend backend = {
      .api = ucx::BackendApi(),
      .small = "knomial?radix=2",
      .large = "scatter_gather?radix=2",
      .ring = "ring",
      .tree = "double_tree",
      .broadcast = "chain",
      .faults = {{"Knomial", COTUNE_ALL_REDUCE, "knomial?radix=2", 1},
                 {"ScatterGather", COTUNE_ALL_REDUCE, "scatter_gather?radix=4", 0},
                 {"Ring", COTUNE_ALL_REDUCE, "ring", 2},
                 {"DoubleTree", COTUNE_ALL_REDUCE, "double_tree", 3},
                 {"AllGatherBruck", COTUNE_ALL_GATHER, "bruck?radix=2", 1},
                 {"ReduceScatterHalving", COTUNE_REDUCE_SCATTER, "halving?radix=2", 3},
                 {"Pairwise", COTUNE_ALL_TO_ALL, "pairwise?posts=2", 2},
                 {"Chain", COTUNE_BROADCAST, "chain", 1}},
      .mismatches = Mismatches(),
      .sends_ahead = true};
  return backend;
}

}  // namespace cotune::backend_test
