// Measures the cost of a call on host memory beside the collective: one rank alone, 64 bytes,
// through the C API, with everything that a call checks.
#include <filesystem>
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "integration/capi/cotune.h"

namespace cotune {
namespace {

// In the tree of built files that has this program.
std::string PluginFolder() {
  return std::filesystem::canonical("/proc/self/exe").parent_path() / "../../plugins/host";
}

struct DestroyGroup {
  void operator()(cotune_group* group) const { cotune_group_destroy(group); }
};

void BM_AllReduceOfOneRank(benchmark::State& state) {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  const std::string plugin_folder = PluginFolder();
  options.plugin_path = plugin_folder.c_str();
  options.ignores_database = 1;
  cotune_group* made = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_group_create(&options, &made, &error) != COTUNE_SUCCESS) {
    state.SkipWithError(error.text);
    return;
  }
  const std::unique_ptr<cotune_group, DestroyGroup> group(made);
  constexpr uint64_t kCount = 16;
  float send[kCount] = {};
  float recv[kCount];
  for (auto _ : state) {
    const cotune_result result =
        cotune_all_reduce(group.get(), send, recv, kCount, COTUNE_F32, COTUNE_REDUCE_SUM);
    if (result != COTUNE_SUCCESS) {
      state.SkipWithError(cotune_last_error(group.get()));
      break;
    }
  }
}
BENCHMARK(BM_AllReduceOfOneRank);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
