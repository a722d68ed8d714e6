// The description of the host backend that the suites of all backends run by.
#include "plugins/host/backend.h"
#include "plugins/host/schedule.h"
#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::backend_test {
namespace {

constexpr int kRanks = 4;
// More ranks count arrivals where fewer read each other's signals.
constexpr int kManyRanks = host::kMaxRanksMeetingBySignals + 1;
constexpr uint64_t kCount = 3000;
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};
constexpr cotune_dtype_t kI32 = {COTUNE_DTYPE_INT, 32, 1};

cotune_problem_t SumOf(cotune_dtype_t type, uint64_t count, int ranks = kRanks) {
  return AbiProblem(COTUNE_ALL_REDUCE, type, COTUNE_SUM, count, ranks);
}

std::vector<Mismatch> Mismatches() {
  const cotune_problem_t sum = SumOf(kF32, kCount);
  return {
      Mismatch{"Count", sum, "one_shot?chunk=65536",
               AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, 10, kRanks), "one_shot?chunk=65536",
               "called all_reduce of 3000 f32 (sum)", "called all_reduce of 10 f32 (sum)"},
      Mismatch{"Type", sum, "two_shot?chunk=65536",
               AbiProblem(COTUNE_ALL_REDUCE, kI32, COTUNE_SUM, kCount, kRanks),
               "two_shot?chunk=65536", "3000 f32", "3000 i32"},
      Mismatch{"Reduction", sum, "one_shot?chunk=65536",
               AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_MAX, kCount, kRanks),
               "one_shot?chunk=65536", "(sum)", "(max)"},
      Mismatch{"Collective", sum, "one_shot?chunk=65536",
               AbiProblem(COTUNE_ALL_TO_ALL, kF32, 0, kCount, kRanks), "pairwise?chunk=65536",
               "all_reduce of 3000", "all_to_all of 3000"},
      Mismatch{"NoElements", sum, "one_shot?chunk=65536", SumOf(kF32, 0), "one_shot?chunk=65536",
               "all_reduce of 3000", "calls with no elements"},
      Mismatch{"NoElementsInLines", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kF32, 0),
               "one_shot?transport=ll", "all_reduce of 20", "calls with no elements"},
      Mismatch{"Root", AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 0),
               "chain?chunk=65536", AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 1),
               "chain?chunk=65536", "from rank 0", "from rank 1"},
      Mismatch{"Choice", sum, "one_shot?chunk=65536", sum, "two_shot?chunk=65536",
               "by another choice", "3000 f32"},
      Mismatch{"TypeOfManyRanks", SumOf(kF32, kCount, kManyRanks), "one_shot?chunk=65536",
               SumOf(kI32, kCount, kManyRanks), "one_shot?chunk=65536", "3000 f32", "3000 i32",
               kManyRanks},
      Mismatch{"TypeInLines", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kI32, 20),
               "one_shot?transport=ll", "20 f32", "20 i32"},
      Mismatch{"LinesAndSlot", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kF32, 20),
               "one_shot?chunk=65536", "by another choice", "20 f32"},
      Mismatch{"OneChunkAndMany", SumOf(kF32, 100'000), "ring?chunk=1048576", SumOf(kF32, 100'000),
               "one_shot?chunk=65536", "by another choice", "100000 f32"},
      Mismatch{"RootInLines", AbiProblem(COTUNE_BROADCAST, kF32, 0, 20, kRanks, 0),
               "flat?transport=ll", AbiProblem(COTUNE_BROADCAST, kF32, 0, 20, kRanks, 1),
               "flat?transport=ll", "from rank 0", "from rank 1"}};
}

}  // namespace

const TestedBackend& Tested() {
  static const TestedBackend backend = {
      .api = host::BackendApi(),
      .small = "one_shot?chunk=65536",
      .large = "two_shot?chunk=65536",
      .ring = "ring?chunk=65536",
      .tree = "tree?chunk=65536",
      .broadcast = "flat?chunk=65536",
      .faults = {Fault{"OneShot", COTUNE_ALL_REDUCE, "one_shot?chunk=65536", 1},
                 Fault{"TwoShot", COTUNE_ALL_REDUCE, "two_shot?chunk=65536", 0},
                 Fault{"Ring", COTUNE_ALL_REDUCE, "ring?chunk=65536", 2},
                 Fault{"Tree", COTUNE_ALL_REDUCE, "tree?chunk=65536", 3},
                 Fault{"AllGatherRing", COTUNE_ALL_GATHER, "ring?chunk=65536", 1},
                 Fault{"ReduceScatterRing", COTUNE_REDUCE_SCATTER, "ring?chunk=65536", 3},
                 Fault{"Pairwise", COTUNE_ALL_TO_ALL, "pairwise?chunk=65536", 2},
                 Fault{"Chain", COTUNE_BROADCAST, "chain?chunk=65536", 1}},
      .mismatches = Mismatches(),
      .meets_in_memory = true};
  return backend;
}

}  // namespace cotune::backend_test
