#include "plugins/cuda/parts/part_shape.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace cotune::cuda {
namespace {

using sdk::Program;
using sdk::Value;

// Also of a row, where its inputs stay in registers: several leaves a thread keep more of the
// memory busy than more threads, which wait for each other (docs/performance/gpu_parts.md, "Parts
// on a GPU").
constexpr int kBlockThreads = 256;
constexpr int kRowThreadsMax = 1024;
constexpr uint64_t kRegistersOfBlock = 65536;
// Addresses, indexes and what is computed with.
constexpr uint64_t kOtherRegisters = 26;
// More would make long code: reductions have all leaves of a thread at once.
constexpr uint64_t kThreadLeavesMax = 16;

const Value& ValueAt(const Program& program, int index) {
  return program.values[static_cast<size_t>(index)];
}
uint64_t LeavesOf(uint64_t columns) { return (columns + kLeafColumns - 1) / kLeafColumns; }
uint64_t LeafWords(const Value& value) { return kLeafColumns * sdk::ElementBytes(value.dtype) / 4; }
uint64_t CeilDiv(uint64_t count, uint64_t by) { return (count + by - 1) / by; }

// An estimate of the registers of a thread.
uint64_t RegistersOf(const Program& program, const PartStage& stage, uint64_t row_threads) {
  const uint64_t held = HeldWordsOf(program, stage, row_threads);
  uint64_t loaded = 0;  // one leaf of each input
  uint64_t stored = 0;
  uint64_t partial = 0;
  for (const int v : stage.values) {
    const Value& value = ValueAt(program, v);
    if (v < program.input_count && value.columns > 1) loaded += LeafWords(value);
    if (ReducesColumns(program, v)) {
      const uint64_t columns = ValueAt(program, NodeOf(program, v).operands[0]).columns;
      partial = std::max(partial, CeilDiv(LeavesOf(columns), row_threads));
    }
  }
  for (const size_t o : stage.outputs) {
    const Value& value = ValueAt(program, program.outputs[o]);
    if (value.columns > 1) stored += LeafWords(value);
  }
  return (held <= kHeldWordsMax ? held : loaded) + stored + partial + kOtherRegisters;
}

// The threads of a row: how many are best, and how many there are registers for.
struct RowThreads {
  uint64_t best;
  uint64_t most;
};

RowThreads RowThreadsOf(const Program& program, const PartStage& stage) {
  const uint64_t leaves = LeavesOf(stage.columns);
  const uint64_t useful = std::min<uint64_t>(std::bit_ceil(leaves), kRowThreadsMax);
  uint64_t threads = std::min<uint64_t>(useful, kBlockThreads);
  while (threads < useful && HeldWordsOf(program, stage, threads) > kHeldWordsMax) threads *= 2;
  const uint64_t wanted = threads;
  while (threads > kBlockThreads && threads * kThreadLeavesMax / 2 >= leaves &&
         RegistersOf(program, stage, threads) > kRegistersOfBlock / threads) {
    threads /= 2;
  }
  return {threads, threads < wanted ? threads : kRowThreadsMax};
}

uint64_t RowsOf(const Program& program, const PartStage& stage) {
  return ValueAt(program, program.outputs[stage.outputs.front()]).rows;
}

uint64_t BlocksOf(const Program& program, const PartStage& stage, const PartShape& shape) {
  const uint64_t rows = RowsOf(program, stage);
  const auto threads = static_cast<uint64_t>(shape.threads);
  switch (stage.kind) {
    case StageKind::kElements:
      return CeilDiv(LeavesOf(rows * stage.columns), threads);
    case StageKind::kLeaves:
      return CeilDiv(rows * LeavesOf(stage.columns), threads);
    case StageKind::kRows:
      return CeilDiv(rows, threads / static_cast<uint64_t>(shape.row_threads));
  }
  return 0;
}

// The work of a stage, by which blocks are shared out: KiB that it reads and writes, at least 1.
uint64_t KibOf(const Program& program, const PartStage& stage) {
  uint64_t bytes = 0;
  for (const int v : stage.values) {
    if (v < program.input_count) bytes += ValueAt(program, v).bytes();
  }
  for (const size_t o : stage.outputs) bytes += ValueAt(program, program.outputs[o]).bytes();
  return bytes / 1024 + 1;
}

struct StageShare {
  uint64_t wanted = 0;  // blocks that have work
  uint64_t work = 0;    // 0: none is wanted
  bool is_full = false;
};

// Fewer blocks than stages with work: a stage ends in the block in which its work ends.
std::vector<unsigned int> SharedBlocks(const std::vector<StageShare>& shares, uint64_t blocks) {
  uint64_t all = 0;
  for (const StageShare& share : shares) all += share.work;
  std::vector<unsigned int> ends;
  uint64_t work = 0;
  for (const StageShare& share : shares) {
    work += share.work;
    ends.push_back(static_cast<unsigned int>(CeilDiv(work * blocks, all)));
  }
  return ends;
}

// One block for each stage with work, and the others by work, to none more than it wants.
std::vector<unsigned int> BlocksByWork(std::vector<StageShare> shares, uint64_t blocks) {
  uint64_t left = blocks;
  uint64_t work = 0;
  for (const StageShare& share : shares) {
    if (share.wanted != 0) --left;
    work += share.work;
  }
  for (bool changed = true; changed;) {
    changed = false;
    const uint64_t shared = left;
    const uint64_t shared_work = work;
    for (StageShare& share : shares) {
      if (share.wanted == 0 || share.is_full) continue;
      if (shared * share.work < (share.wanted - 1) * shared_work) continue;
      share.is_full = true;
      changed = true;
      left -= share.wanted - 1;
      work -= share.work;
    }
  }
  std::vector<unsigned int> ends;
  uint64_t end = 0;
  uint64_t work_before = 0;
  for (const StageShare& share : shares) {
    if (share.is_full) {
      end += share.wanted;
    } else if (share.wanted != 0) {
      const uint64_t before = work_before * left / work;
      work_before += share.work;
      end += 1 + work_before * left / work - before;
    }
    ends.push_back(static_cast<unsigned int>(end));
  }
  return ends;
}

// Whether a stage reads and writes values of the type by leaves, whose rows begin aligned if the
// array does.
bool HasVectors(const PartStage& stage, const Value& value) {
  if (stage.kind == StageKind::kElements) {
    return value.rows_kind == stage.rows_kind && value.columns == stage.columns;
  }
  return value.columns > 1 && value.columns % kLeafColumns == 0;
}

}  // namespace

uint64_t HeldWordsOf(const Program& program, const PartStage& stage, uint64_t row_threads) {
  uint64_t held = 0;
  for (const int v : stage.values) {
    const Value& value = ValueAt(program, v);
    if (v >= program.input_count || value.columns == 1) continue;
    held += LeafWords(value) * CeilDiv(LeavesOf(value.columns), row_threads);
  }
  return held;
}

PartShape ShapeOf(const Program& program, const PartStages& stages) {
  uint64_t best = 0;
  uint64_t most = kRowThreadsMax;
  for (const PartStage& stage : stages.stages) {
    if (stage.kind != StageKind::kRows) continue;
    const RowThreads threads = RowThreadsOf(program, stage);
    best = std::max(best, threads.best);
    most = std::min(most, threads.most);
  }
  if (best == 0) return {};
  const int chosen = static_cast<int>(std::min(best, most));
  return {chosen, std::max(chosen, kBlockThreads)};
}

uint64_t BlocksOf(const Program& program, const PartStages& stages, const PartShape& shape,
                  int launch) {
  uint64_t blocks = 0;
  for (const PartStage& stage : stages.stages) {
    if (stage.launch == launch) blocks += BlocksOf(program, stage, shape);
  }
  return blocks;
}

std::vector<unsigned int> StageEndsOf(const Program& program, const PartStages& stages,
                                      const PartShape& shape, int launch, uint64_t blocks_max) {
  std::vector<StageShare> shares;
  uint64_t with_work = 0;
  for (const PartStage& stage : stages.stages) {
    if (stage.launch != launch) continue;
    const uint64_t wanted = BlocksOf(program, stage, shape);
    shares.push_back({wanted, wanted == 0 ? 0 : KibOf(program, stage)});
    if (wanted != 0) ++with_work;
  }
  const uint64_t wanted = BlocksOf(program, stages, shape, launch);
  const uint64_t blocks = std::min(wanted, blocks_max);
  if (blocks == 0) return std::vector<unsigned int>(shares.size(), 0);
  return blocks < with_work ? SharedBlocks(shares, blocks) : BlocksByWork(shares, blocks);
}

uint64_t BlocksMax(const PartStages& stages, int launch, uint64_t resident_blocks) {
  // On a H200, parts of 1024 rows and more took 0.94 to 0.99 of the time of one wave; 8 waves of
  // rows gained no more, and some of it was lost again (docs/performance/gpu_parts.md, "Parts on a
  // GPU").
  constexpr uint64_t kWavesOfRows = 2;
  constexpr uint64_t kWavesOfElements = 8;
  const bool has_rows =
      std::any_of(stages.stages.begin(), stages.stages.end(), [&](const PartStage& stage) {
        return stage.launch == launch && stage.kind == StageKind::kRows;
      });
  return resident_blocks * (has_rows ? kWavesOfRows : kWavesOfElements);
}

std::vector<uint32_t> VectorAlignments(const Program& program, const PartStages& stages) {
  const auto inputs = static_cast<size_t>(program.input_count);
  std::vector<uint32_t> alignments(inputs + program.outputs.size(), 1);
  const auto raise = [&](size_t operand, const PartStage& stage, int v) {
    const Value& value = ValueAt(program, v);
    if (!HasVectors(stage, value)) return;
    const uint64_t leaf_bytes = kLeafColumns * sdk::ElementBytes(value.dtype);
    alignments[operand] = static_cast<uint32_t>(std::min<uint64_t>(leaf_bytes, 16));
  };
  for (const PartStage& stage : stages.stages) {
    for (const int v : stage.values) {
      if (v < program.input_count) raise(static_cast<size_t>(v), stage, v);
    }
    for (const size_t o : stage.outputs) raise(inputs + o, stage, program.outputs[o]);
  }
  return alignments;
}

}  // namespace cotune::cuda
