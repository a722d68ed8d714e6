#include "tests/gpu/program_values.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"

namespace cotune::gputest {
namespace {

// Elements [first, first + count) of a vector, or nothing of an empty one.
template <typename T>
std::vector<T> Part(const std::vector<T>& all, uint64_t first, uint64_t count) {
  if (all.empty()) return {};
  const auto begin = all.begin() + static_cast<int64_t>(first);
  return {begin, begin + static_cast<int64_t>(count)};
}

EvaluatedValue RowOf(const EvaluatedValue& value, uint64_t row) {
  const uint64_t columns = value.type.columns;
  return {.type = value.type,
          .rows = 1,
          .floats = Part(value.floats, row * columns, columns),
          .integers = Part(value.integers, row * columns, columns),
          .integer_bounds = Part(value.integer_bounds, row * columns, columns)};
}

}  // namespace

Result<std::vector<ProgramText>> ProgramTexts(const Flags& flags, int world_size) {
  std::vector<ProgramText> texts;
  const std::string seeds = flags.Text("seeds", "");
  if (!seeds.empty()) {
    const size_t dash = seeds.find('-');
    const uint64_t first = std::strtoull(seeds.c_str(), nullptr, 10);
    const uint64_t last =
        dash == std::string::npos ? first : std::strtoull(seeds.c_str() + dash + 1, nullptr, 10);
    for (uint64_t seed = first; seed <= last; ++seed) {
      texts.push_back({fmt::format("random program {}", seed),
                       seed % 4 == 0 ? RandomBucketProgram(seed, world_size)
                                     : RandomProgram(seed, world_size)});
    }
  }
  for (const std::string& path : flags.List("files", "")) {
    std::ifstream file(path);
    if (!file) return Fail(ErrorCode::kUsage, "the file cannot be read", path);
    texts.push_back({path.substr(path.rfind('/') + 1),
                     {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}});
  }
  if (texts.empty()) return Fail(ErrorCode::kUsage, "no program is named", "--seeds, --files");
  return texts;
}

uint64_t FittingRows(const ProgramGraph& graph, uint64_t rows, int world_size) {
  if (!graph.has_rows()) return 1;
  if (!graph.needs_whole_shares()) return rows;
  const auto ranks = static_cast<uint64_t>(world_size);
  return (rows + ranks - 1) / ranks * ranks;
}

Result<ProgramValues> ValuesOf(const Program& program, uint64_t rows, int rank, uint32_t salt) {
  const ProgramGraph& graph = program.graph();
  const int world_size = program.group().world_size;
  const ProgramDataSet data{.rows = rows, .world_size = world_size, .salt = salt};
  std::vector<std::vector<std::vector<std::byte>>> of_ranks;
  for (int each = 0; each < world_size; ++each) {
    auto& inputs = of_ranks.emplace_back();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      const ValueType& type = graph.type(value);
      inputs.push_back(RepeatedRows(InputPeriod(graph, i, each, data),
                                    type.columns * SizeBytes(type.dtype),
                                    program.RowsOf(value, rows)));
    }
  }
  COTUNE_TRY(const auto outputs, EvaluateProgramOnRank(graph, rows, world_size, rank, of_ranks));
  std::vector<EvaluatedValue> expected;
  for (const auto& output : outputs) expected.push_back(*output);
  return ProgramValues{std::move(of_ranks[static_cast<size_t>(rank)]), std::move(expected)};
}

int OverwrittenBy(const ProgramGraph& graph, size_t input) {
  for (size_t output = 0; output < graph.outputs().size(); ++output) {
    if (graph.outputs()[output].into == static_cast<int32_t>(input))
      return static_cast<int>(output);
  }
  return -1;
}

std::string WhatIsWrong(const EvaluatedValue& expected, std::span<const std::byte> seen) {
  const uint64_t wrong = CountWrong(expected, seen);
  if (wrong == 0) return "";
  const uint64_t row_bytes = expected.type.columns * SizeBytes(expected.type.dtype);
  uint64_t row = 0;
  while (row + 1 < expected.rows &&
         CountWrong(RowOf(expected, row), seen.subspan(row * row_bytes, row_bytes)) == 0) {
    ++row;
  }
  return fmt::format("{} of {} elements are wrong, the first in row {}", wrong, expected.elements(),
                     row);
}

}  // namespace cotune::gputest
