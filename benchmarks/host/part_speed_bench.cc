// Measures parts on host memory, as lowering leaves them. Each size of memcpy stands beside them,
// and copy_percent is the time of a copy with as many bytes read and written, in percent of the
// time of the part: the median over pairs of a part and a copy that follow each other. Bytes that
// are the same for all rows stay in the cache and are left out.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "plugins/host/element_program.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using sdk::ValueDtype;

struct PartText {
  sdk::Program program;
  uint64_t rows;

  int Append(ValueDtype dtype, uint64_t columns, bool is_single = false) {
    program.values.push_back({.dtype = dtype,
                              .rows_kind = is_single ? COTUNE_ROWS_ONE : COTUNE_ROWS_ALL,
                              .rows = is_single ? 1 : rows,
                              .columns = columns});
    return static_cast<int>(program.values.size()) - 1;
  }
  // b < 0: the literal, or no second operand.
  int Node(uint32_t kind, ValueDtype dtype, uint64_t columns, int a, int b = -1,
           double literal = 0) {
    sdk::ProgramNode node{.kind = kind, .operand_count = b >= 0 || literal != 0 ? 2 : 1};
    node.operands[0] = a;
    node.operands[1] = b;
    node.literals[1] = literal;
    program.nodes.push_back(node);
    return Append(dtype, columns);
  }
};

sdk::Program ResidualNorm(ValueDtype dtype, uint64_t rows, uint64_t columns) {
  PartText text{.program = {}, .rows = rows};
  constexpr auto kF32 = ValueDtype::kF32;
  const int x = text.Append(dtype, columns);
  const int residual = text.Append(dtype, columns);
  const int gamma = text.Append(dtype, columns, true);
  text.program.input_count = 3;
  const int stream = text.Node(COTUNE_NODE_ADD, dtype, columns, x, residual);
  int wide = stream;
  if (dtype != kF32) wide = text.Node(COTUNE_NODE_CAST, kF32, columns, stream);
  const int square = text.Node(COTUNE_NODE_MUL, kF32, columns, wide, wide);
  const int sum = text.Node(COTUNE_NODE_ROW_SUM, kF32, 1, square);
  const int mean = text.Node(COTUNE_NODE_MUL, kF32, 1, sum, -1, 1.0 / static_cast<double>(columns));
  const int shifted = text.Node(COTUNE_NODE_ADD, kF32, 1, mean, -1, 1e-6);
  const int scale = text.Node(COTUNE_NODE_RSQRT, kF32, 1, shifted);
  int y = text.Node(COTUNE_NODE_MUL, kF32, columns, wide, scale);
  if (dtype != kF32) y = text.Node(COTUNE_NODE_CAST, dtype, columns, y);
  y = text.Node(COTUNE_NODE_MUL, dtype, columns, y, gamma);
  text.program.outputs = {y, stream};
  text.program.output_into = {-1, residual};
  return text.program;
}

sdk::Program BiasRelu(ValueDtype dtype, uint64_t rows, uint64_t columns) {
  PartText text{.program = {}, .rows = rows};
  const int x = text.Append(dtype, columns);
  const int bias = text.Append(dtype, columns, true);
  text.program.input_count = 2;
  const int sum = text.Node(COTUNE_NODE_ADD, dtype, columns, x, bias);
  text.program.outputs = {text.Node(COTUNE_NODE_RELU, dtype, columns, sum)};
  text.program.output_into = {-1};
  return text.program;
}

sdk::Program Softmax(ValueDtype dtype, uint64_t rows, uint64_t columns) {
  PartText text{.program = {}, .rows = rows};
  constexpr auto kF32 = ValueDtype::kF32;
  const int x = text.Append(dtype, columns);
  text.program.input_count = 1;
  const int wide = text.Node(COTUNE_NODE_CAST, kF32, columns, x);
  const int largest = text.Node(COTUNE_NODE_ROW_MAX, kF32, 1, wide);
  const int shifted = text.Node(COTUNE_NODE_SUB, kF32, columns, wide, largest);
  const int power = text.Node(COTUNE_NODE_EXP, kF32, columns, shifted);
  const int sum = text.Node(COTUNE_NODE_ROW_SUM, kF32, 1, power);
  const int y = text.Node(COTUNE_NODE_DIV, kF32, columns, power, sum);
  text.program.outputs = {text.Node(COTUNE_NODE_CAST, dtype, columns, y)};
  text.program.output_into = {-1};
  return text.program;
}

// RMSNorm, and its result in e4m3 by one scale for all of it.
sdk::Program NormToFloat8(ValueDtype dtype, uint64_t rows, uint64_t columns) {
  PartText text{.program = {}, .rows = rows};
  constexpr auto kF32 = ValueDtype::kF32;
  const int x = text.Append(dtype, columns);
  const int gamma = text.Append(kF32, columns, true);
  text.program.input_count = 2;
  const int wide = text.Node(COTUNE_NODE_CAST, kF32, columns, x);
  const int square = text.Node(COTUNE_NODE_MUL, kF32, columns, wide, wide);
  const int sum = text.Node(COTUNE_NODE_ROW_SUM, kF32, 1, square);
  const int mean = text.Node(COTUNE_NODE_MUL, kF32, 1, sum, -1, 1.0 / static_cast<double>(columns));
  const int shifted = text.Node(COTUNE_NODE_ADD, kF32, 1, mean, -1, 1e-6);
  const int scale = text.Node(COTUNE_NODE_RSQRT, kF32, 1, shifted);
  const int normed = text.Node(COTUNE_NODE_MUL, kF32, columns, wide, scale);
  const int weighted = text.Node(COTUNE_NODE_MUL, kF32, columns, normed, gamma);
  const int scaled = text.Node(COTUNE_NODE_MUL, kF32, columns, weighted, -1, 16);
  text.program.outputs = {text.Node(COTUNE_NODE_CAST, ValueDtype::kF8E4M3, columns, scaled)};
  text.program.output_into = {-1};
  return text.program;
}

using Clock = std::chrono::steady_clock;

// The median of the ratios of the time of a copy to that of the part.
template <class Part>
double CopyPercent(uint64_t moved_bytes, const Part& part) {
  const std::vector<std::byte> from(moved_bytes / 2);
  std::vector<std::byte> to(moved_bytes / 2);
  // At least 4 MiB between two looks at the clock.
  const uint64_t repetitions = 1 + (4 << 20) / moved_bytes;
  std::vector<double> ratios;
  for (int pair = 0; pair < 21; ++pair) {
    const auto begin = Clock::now();
    for (uint64_t i = 0; i < repetitions; ++i) part();
    const auto middle = Clock::now();
    for (uint64_t i = 0; i < repetitions; ++i) {
      std::memcpy(to.data(), from.data(), from.size());
      benchmark::ClobberMemory();
    }
    ratios.push_back(std::chrono::duration<double>(Clock::now() - middle) /
                     std::chrono::duration<double>(middle - begin));
  }
  std::nth_element(ratios.begin(), ratios.begin() + 10, ratios.end());
  return 100 * ratios[10];
}

void BM_Part(benchmark::State& state, ValueDtype dtype,
             sdk::Program (*make)(ValueDtype, uint64_t, uint64_t)) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const auto columns = static_cast<uint64_t>(state.range(1));
  const sdk::Program program = make(dtype, bytes / columns / sdk::ElementBytes(dtype), columns);
  auto prepared = ElementProgram::Prepare(program);
  if (!prepared) {
    state.SkipWithError(prepared.error().message.c_str());
    return;
  }
  // All zero: an input that is overwritten stays as it is.
  uint64_t moved_bytes = 0;
  std::vector<std::vector<std::byte>> memory;
  const auto operand = [&](const sdk::Value& value) {
    if (value.rows_kind == COTUNE_ROWS_ALL) moved_bytes += value.bytes();
    memory.emplace_back(value.bytes());
    return memory.back().data();
  };
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < program.input_count; ++i) inputs.push_back(operand(program.values[i]));
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const sdk::Value& value = program.values[program.outputs[o]];
    const int into = program.output_into[o];
    if (into >= 0) moved_bytes += value.bytes();
    outputs.push_back(into >= 0 ? memory[into].data() : operand(value));
  }
  const auto run = [&] {
    (*prepared)->Run(inputs.data(), outputs.data());
    benchmark::ClobberMemory();
  };
  for (auto _ : state) run();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * moved_bytes));
  state.counters["copy_percent"] = CopyPercent(moved_bytes, run);
}

void BM_Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const std::vector<std::byte> from(2 * bytes);
  std::vector<std::byte> to(2 * bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * 4 * bytes));
}

void Sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t bytes : {256 << 10, 16 << 20}) {
    for (const int64_t columns : {1024, 8192}) bench->Args({bytes, columns});
  }
}

BENCHMARK(BM_Memcpy)->Arg(256 << 10)->Arg(16 << 20);

#define COTUNE_PART_BENCHMARK(part)                                             \
  BENCHMARK_CAPTURE(BM_Part, part##_f32, ValueDtype::kF32, part)->Apply(Sizes); \
  BENCHMARK_CAPTURE(BM_Part, part##_bf16, ValueDtype::kBf16, part)->Apply(Sizes)

COTUNE_PART_BENCHMARK(ResidualNorm);
COTUNE_PART_BENCHMARK(BiasRelu);
COTUNE_PART_BENCHMARK(Softmax);
COTUNE_PART_BENCHMARK(NormToFloat8);

}  // namespace
}  // namespace cotune::host

BENCHMARK_MAIN();
