// Measures the cost of a call on host memory beside the collective, and of a call of a program
// beside its steps: one rank alone, 64 bytes, through the C API, with everything that a call
// checks.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "integration/capi/cotune.h"
#include "plugins/host/element_program.h"
#include "plugins/sdk/program.h"

namespace cotune {
namespace {

// In the tree of built files that has this program.
std::string PluginFolder() {
  return std::filesystem::canonical("/proc/self/exe").parent_path() / "../../plugins/host";
}

struct DestroyGroup {
  void operator()(cotune_group* group) const { cotune_group_destroy(group); }
};

using Group = std::unique_ptr<cotune_group, DestroyGroup>;

// One rank alone; nullptr, and the state says why, when it cannot be made.
Group MakeGroup(benchmark::State& state) {
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
  }
  return Group(made);
}

constexpr uint64_t kCount = 16;

void BM_AllReduceOfOneRank(benchmark::State& state) {
  const Group group = MakeGroup(state);
  if (group == nullptr) return;
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

// The part of the program below by itself, without a plugin's border.
void BM_PartAlone(benchmark::State& state) {
  sdk::Program part;
  const sdk::Value value{
      .dtype = sdk::ValueDtype::kF32, .rows_kind = COTUNE_ROWS_ALL, .rows = 1, .columns = kCount};
  part.values = {value, value};
  part.input_count = 1;
  part.nodes = {{.kind = COTUNE_NODE_RELU, .operand_count = 1}};
  part.outputs = {1};
  part.output_into = {-1};
  const auto plan = host::ElementProgram::Prepare(std::move(part));
  if (!plan) {
    state.SkipWithError(plan.error().message.c_str());
    return;
  }
  const float x[kCount] = {};
  float y[kCount];
  const void* const inputs[] = {x};
  void* const outputs[] = {y};
  for (auto _ : state) {
    (*plan)->Run(inputs, outputs);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_PartAlone);

// all_reduce and relu. Argument: how many sizes take turns, so that a call is not always that of
// before. Its cost over its steps is the time less that of the two above; goal: 500 ns or less.
void BM_ProgramOfOneRank(benchmark::State& state) {
  const Group group = MakeGroup(state);
  if (group == nullptr) return;
  constexpr char kText[] =
      "%x = input f32 [R, 16]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n";
  cotune_program* program = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_program_parse(kText, sizeof(kText) - 1, &program, &error) != COTUNE_SUCCESS) {
    state.SkipWithError(error.text);
    return;
  }
  const auto sizes = state.range(0);
  std::vector<float> x(static_cast<size_t>(sizes) * kCount);
  std::vector<float> y(x.size());
  int64_t rows = 1;
  for (auto _ : state) {
    const int64_t shape[] = {rows, kCount};
    const cotune_tensor input{sizeof(cotune_tensor), COTUNE_F32, x.data(), 2, 0, shape};
    const cotune_tensor output{sizeof(cotune_tensor), COTUNE_F32, y.data(), 2, 0, shape};
    if (cotune_program_run(group.get(), program, &input, 1, &output, 1) != COTUNE_SUCCESS) {
      state.SkipWithError(cotune_last_error(group.get()));
      break;
    }
    rows = rows == sizes ? 1 : rows + 1;
  }
  cotune_program_free(program);
}
BENCHMARK(BM_ProgramOfOneRank)->Arg(1)->Arg(8);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
