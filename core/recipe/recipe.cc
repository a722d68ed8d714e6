#include "core/recipe/recipe.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

// The bytes that a temporary occupies.
uint64_t PlaceBytes(const ValueType& type, int32_t world_size, uint64_t rows) {
  const uint64_t own_rows = type.rows == Rows::kOne   ? 1
                            : type.rows == Rows::kAll ? rows
                                                      : rows / static_cast<uint64_t>(world_size);
  const uint64_t bytes = own_rows * type.columns * SizeBytes(type.dtype);
  return (bytes + kPieceAlignmentBytes - 1) / kPieceAlignmentBytes * kPieceAlignmentBytes;
}

// Temporaries that lie one after another: the pieces of a packed value, or one with memory of its
// own.
struct Block {
  std::vector<size_t> temporaries;
  size_t first_step = 0;
  size_t last_step = 0;
  uint64_t bytes = 0;
  uint64_t begin = 0;
};

std::vector<Block> BlocksOf(const Recipe& recipe, int32_t world_size, uint64_t rows) {
  std::vector<Block> blocks;
  std::vector<bool> is_placed(recipe.temporaries.size());
  const auto add = [&](Block& block, size_t index) {
    const RecipeTemporary& temporary = recipe.temporaries[index];
    const bool is_first = block.temporaries.empty();
    block.first_step =
        is_first ? temporary.first_step : std::min(block.first_step, temporary.first_step);
    block.last_step = std::max(block.last_step, temporary.last_step);
    block.bytes += PlaceBytes(recipe.graph.type(temporary.value), world_size, rows);
    block.temporaries.push_back(index);
    is_placed[index] = true;
  };
  for (size_t i = 0; i < recipe.temporaries.size(); ++i) {
    if (is_placed[i]) continue;
    Block block;
    const auto pack = std::find_if(recipe.packs.begin(), recipe.packs.end(), [&](const auto& each) {
      return std::find(each.begin(), each.end(), recipe.temporaries[i].value) != each.end();
    });
    if (pack == recipe.packs.end()) {
      add(block, i);
    } else {
      for (const ValueIndex piece : *pack) {
        const auto found =
            std::find_if(recipe.temporaries.begin(), recipe.temporaries.end(),
                         [&](const RecipeTemporary& each) { return each.value == piece; });
        add(block, static_cast<size_t>(found - recipe.temporaries.begin()));
      }
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// The problem of the packed value of a bucket, whose collectives are of one class.
Problem PackedProblem(const Recipe& recipe, const Program& program, const RecipeStep& step,
                      uint64_t rows, uint64_t topology_digest) {
  std::vector<ValueIndex> values;
  for (const size_t node : step.backend_step()->collectives) {
    values.push_back(recipe.graph.value_of_node(node));
  }
  Problem problem = program.ProblemOf(step.backend_step()->first(), rows, topology_digest);
  problem.count = PackedBytes(recipe.graph, values, program.group().world_size, rows) /
                  SizeBytes(problem.cls.dtype);
  return problem;
}

// Why a step does not run on registered buffers, although the program's operands are registered.
std::string WhyPlain(const Recipe& recipe, const RecipeStep& step, bool reads_operands) {
  const bool reads_share = std::any_of(step.inputs.begin(), step.inputs.end(), [&](SlotIndex slot) {
    return slot >= recipe.first_share() && slot < recipe.first_temporary();
  });
  if (reads_share) return "it reads other rows of an input on each rank";
  return fmt::format("its {} lies between two steps, in memory of the job",
                     reads_operands ? "value" : "operand");
}

Status CheckShares(const Recipe& recipe, int32_t world_size, uint64_t rows) {
  if (!recipe.graph.needs_whole_shares() || rows % static_cast<uint64_t>(world_size) == 0) {
    return {};
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("{} ranks have no equal shares of {} rows", world_size, rows));
}

}  // namespace

std::vector<size_t> Recipe::backend_steps() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].backend_step() != nullptr) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [&](size_t a, size_t b) {
    return steps[a].backend_step()->first() < steps[b].backend_step()->first();
  });
  return found;
}

Result<std::vector<BackendCall>> BackendCalls(const Recipe& recipe, const Program& program,
                                              uint64_t rows, uint64_t topology_digest,
                                              bool rounds_values) {
  const bool is_as_it_is = recipe.graph == program.graph();
  COTUNE_TRY(const Program own,
             is_as_it_is ? Result<Program>(program) : Program::Bind(recipe.graph, program.group()));
  COTUNE_RETURN_IF_ERROR(CheckShares(recipe, program.group().world_size, rows));
  const auto are_operands = [&](const std::vector<SlotIndex>& slots) {
    return std::all_of(slots.begin(), slots.end(),
                       [&](SlotIndex slot) { return slot < recipe.first_share(); });
  };
  std::vector<BackendCall> calls;
  for (const size_t index : recipe.backend_steps()) {
    const RecipeStep& step = recipe.steps[index];
    const bool reads_operands = are_operands(step.inputs);
    const bool is_symmetric = program.anchor().buffer_class != BufferClass::kPlain &&
                              reads_operands && are_operands(step.outputs);
    std::string why_plain;
    if (program.anchor().buffer_class != BufferClass::kPlain && !is_symmetric) {
      why_plain = WhyPlain(recipe, step, reads_operands);
    }
    GroupShape group = program.group();
    group.buffers = is_symmetric ? BufferClass::kSymmetric : BufferClass::kPlain;
    group.rounds_values = rounds_values;
    const bool is_packed = step.is_packed();
    if (is_packed || step.program.is_single_collective()) {
      Problem problem = is_packed
                            ? PackedProblem(recipe, own, step, rows, topology_digest)
                            : own.ProblemOf(step.backend_step()->first(), rows, topology_digest);
      if (is_packed && problem.bytes() > kPackedBytesMax) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("a packed value would have {} bytes, of which {} are the most",
                                problem.bytes(), kPackedBytesMax));
      }
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

uint64_t PackedBytes(const ProgramGraph& graph, const std::vector<ValueIndex>& pieces,
                     int32_t world_size, uint64_t rows) {
  uint64_t bytes = 0;
  for (const ValueIndex piece : pieces) bytes += PlaceBytes(graph.type(piece), world_size, rows);
  return bytes;
}

TemporaryLayout LayOut(const Recipe& recipe, int32_t world_size, uint64_t rows) {
  TemporaryLayout layout;
  layout.offsets.resize(recipe.temporaries.size());
  std::vector<Block> blocks = BlocksOf(recipe, world_size, rows);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    // The lowest place that is free while this one is alive.
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (size_t j = 0; j < i; ++j) {
      const Block& other = blocks[j];
      if (other.last_step < block.first_step || other.first_step > block.last_step) continue;
      taken.emplace_back(other.begin, other.begin + other.bytes);
    }
    std::sort(taken.begin(), taken.end());
    for (const auto& [from, to] : taken) {
      if (block.begin + block.bytes <= from) break;
      block.begin = std::max(block.begin, to);
    }
    uint64_t offset = block.begin;
    for (const size_t temporary : block.temporaries) {
      layout.offsets[temporary] = offset;
      offset +=
          PlaceBytes(recipe.graph.type(recipe.temporaries[temporary].value), world_size, rows);
    }
    layout.bytes = std::max(layout.bytes, offset);
  }
  return layout;
}

}  // namespace cotune
