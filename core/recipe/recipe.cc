#include "core/recipe/recipe.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr uint64_t kAlignmentBytes = 256;

uint64_t BytesOf(const ValueType& type, int32_t world_size, uint64_t rows) {
  const uint64_t own_rows = type.rows == Rows::kOne   ? 1
                            : type.rows == Rows::kAll ? rows
                                                      : rows / static_cast<uint64_t>(world_size);
  return own_rows * type.columns * SizeBytes(type.dtype);
}

}  // namespace

std::vector<size_t> Recipe::backend_steps() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].backend_step() != nullptr) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [&](size_t a, size_t b) {
    return steps[a].backend_step()->collective < steps[b].backend_step()->collective;
  });
  return found;
}

Result<std::vector<BackendCall>> BackendCalls(const Recipe& recipe, const Program& program,
                                              uint64_t rows, uint64_t topology_digest) {
  const bool is_as_it_is = recipe.graph == program.graph();
  COTUNE_TRY(const Program own,
             is_as_it_is ? Result<Program>(program) : Program::Bind(recipe.graph, program.group()));
  const auto operands =
      static_cast<SlotIndex>(recipe.graph.inputs().size() + recipe.graph.outputs().size());
  const auto are_operands = [&](const std::vector<SlotIndex>& slots) {
    return std::all_of(slots.begin(), slots.end(), [&](SlotIndex slot) { return slot < operands; });
  };
  std::vector<BackendCall> calls;
  for (const size_t index : recipe.backend_steps()) {
    const RecipeStep& step = recipe.steps[index];
    const bool reads_operands = are_operands(step.inputs);
    const bool is_symmetric = program.anchor().buffer_class != BufferClass::kPlain &&
                              reads_operands && are_operands(step.outputs);
    std::string why_plain;
    if (program.anchor().buffer_class != BufferClass::kPlain && !is_symmetric) {
      why_plain = fmt::format("its {} lies between two steps, in memory of the job",
                              reads_operands ? "value" : "operand");
    }
    GroupShape group = program.group();
    group.buffers = is_symmetric ? BufferClass::kSymmetric : BufferClass::kPlain;
    if (step.program.is_single_collective()) {
      Problem problem = own.ProblemOf(step.backend_step()->collective, rows, topology_digest);
      problem.cls.buffer_class = group.buffers;
      COTUNE_TRY(Program single, Program::SingleCollective(problem.cls));
      calls.push_back({std::move(single), problem, std::move(why_plain)});
      continue;
    }
    COTUNE_TRY(Program region, Program::Bind(step.program, group));
    const Problem problem = region.ProblemAtRows(rows, topology_digest);
    calls.push_back({std::move(region), problem, std::move(why_plain)});
  }
  return calls;
}

TemporaryLayout LayOut(const Recipe& recipe, int32_t world_size, uint64_t rows) {
  TemporaryLayout layout;
  struct Placed {
    const RecipeTemporary* temporary;
    uint64_t begin, end;
  };
  std::vector<Placed> placed;
  for (const RecipeTemporary& temporary : recipe.temporaries) {
    const uint64_t bytes = BytesOf(recipe.graph.type(temporary.value), world_size, rows);
    const uint64_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    // The lowest place that is free while this one is alive.
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (const Placed& other : placed) {
      const bool overlaps = other.temporary->last_step >= temporary.first_step &&
                            other.temporary->first_step <= temporary.last_step;
      if (overlaps) taken.emplace_back(other.begin, other.end);
    }
    std::sort(taken.begin(), taken.end());
    uint64_t begin = 0;
    for (const auto& [from, to] : taken) {
      if (begin + rounded <= from) break;
      begin = std::max(begin, to);
    }
    placed.push_back({&temporary, begin, begin + rounded});
    layout.offsets.push_back(begin);
    layout.bytes = std::max(layout.bytes, begin + rounded);
  }
  return layout;
}

}  // namespace cotune
