// Sums a vector over all ranks by the tuned table, checks it, and says what ran.
//
//   cotune run -- ./all_reduce [DATABASE]
//   mpirun -n 2 ./all_reduce [DATABASE]
//
// Calls run the winners of the DATABASE, or of the one where `cotune tune` leaves it; without any,
// the default choices.
#include <cstdio>
#include <vector>

#include "cotune/cotune.h"

namespace {

int Fail(const cotune_group* group) {
  std::fprintf(stderr, "%s\n", cotune_last_error(group));
  return cotune_exit_code(cotune_last_result(group));
}

int Run(cotune_group* group, const char* database) {
  if (database != nullptr && cotune_load(group, database) != COTUNE_SUCCESS) return Fail(group);
  const int rank = cotune_group_rank(group);
  const int size = cotune_group_size(group);
  std::vector<float> values(1 << 16, static_cast<float>(rank + 1));
  std::vector<float> sums(values.size());
  if (cotune_all_reduce(group, values.data(), sums.data(), values.size(), COTUNE_F32,
                        COTUNE_REDUCE_SUM) != COTUNE_SUCCESS) {
    return Fail(group);
  }
  for (float sum : sums) {
    if (sum != static_cast<float>(size * (size + 1) / 2)) return 4;
  }
  if (rank != 0) return 0;
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = values.size();
  char text[2048];
  if (cotune_explain(group, &call, text, sizeof(text), nullptr) != COTUNE_SUCCESS) {
    return Fail(group);
  }
  std::printf("%d ranks, every element is %g\n%s", size, sums[0], text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_group* group = nullptr;
  if (cotune_group_create(nullptr, &group, &error) != COTUNE_SUCCESS) {
    std::fprintf(stderr, "%s\n", error.text);
    return cotune_exit_code(error.result);
  }
  const int exit_code = Run(group, argc > 1 ? argv[1] : nullptr);
  cotune_group_destroy(group);
  return exit_code;
}
