#include "core/problem/expected_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/problem/program.h"
#include "core/problem/program_evaluator.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The most elements that all ranks together have in one evaluation. An evaluated element takes 16
// bytes.
constexpr uint64_t kElementsAtOnce = 1 << 20;

tl::unexpected<Error> CannotExpect(const Problem& problem, std::string cause) {
  return Fail(ErrorCode::kUsage, "the result of this collective cannot be evaluated",
              ToText(problem), std::move(cause), "give the data of each rank of the group");
}

Status CheckSent(const Problem& problem, uint64_t elements, const SentByRanks& sent) {
  if (sent.size() != static_cast<size_t>(problem.cls.world_size)) {
    return CannotExpect(problem, fmt::format("there is data of {} ranks", sent.size()));
  }
  const uint64_t bytes = elements * SizeBytes(problem.cls.dtype);
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    if (sent[rank].size() == bytes) continue;
    return CannotExpect(problem, fmt::format("rank {} sends {} bytes instead of {}", rank,
                                             sent[rank].size(), bytes));
  }
  return {};
}

std::vector<std::byte> Cut(const std::vector<std::byte>& bytes, uint64_t first, uint64_t size) {
  const auto begin = bytes.begin() + static_cast<ptrdiff_t>(first);
  return {begin, begin + static_cast<ptrdiff_t>(size)};
}

Result<SentByRanks> BlocksFor(const Problem& problem, int rank, const SentByRanks& sent) {
  if (rank < 0 || rank >= problem.cls.world_size) {
    return CannotExpect(problem, fmt::format("rank {} is none of the group", rank));
  }
  COTUNE_RETURN_IF_ERROR(CheckSent(problem, problem.send_elements(), sent));
  const uint64_t block_bytes = problem.count * SizeBytes(problem.cls.dtype);
  const bool has_blocks = problem.send_elements() > problem.count;
  SentByRanks blocks;
  for (const auto& buffer : sent) {
    const uint64_t first = has_blocks ? static_cast<uint64_t>(rank) * block_bytes : 0;
    blocks.push_back(Cut(buffer, first, block_bytes));
  }
  return blocks;
}

// Integers of the same bytes, as wide as the block can be parted into: a float would lose the bits
// of NaN.
Problem AsMovedBits(Problem problem) {
  const uint64_t block_bytes = problem.count * SizeBytes(problem.cls.dtype);
  problem.cls.dtype = Dtype::kU8;
  for (const Dtype wider : {Dtype::kI32, Dtype::kI64}) {
    if (block_bytes % SizeBytes(wider) == 0) problem.cls.dtype = wider;
  }
  problem.count = block_bytes / SizeBytes(problem.cls.dtype);
  return problem;
}

}  // namespace

Result<EvaluatedValue> ExpectedValue(const Problem& problem, int rank, const SentByRanks& sent) {
  COTUNE_TRY(const SentByRanks blocks, BlocksFor(problem, rank, sent));
  return ExpectedValueOfBlocks(problem, blocks);
}

Result<std::vector<std::byte>> ExpectedBytes(const Problem& problem, int rank,
                                             const SentByRanks& sent) {
  COTUNE_TRY(const SentByRanks blocks, BlocksFor(problem, rank, sent));
  return ExpectedBytesOfBlocks(problem, blocks);
}

Result<EvaluatedValue> ExpectedValueOfBlocks(const Problem& problem, const SentByRanks& blocks) {
  COTUNE_RETURN_IF_ERROR(CheckSent(problem, problem.count, blocks));
  // A rank gets from its blocks alone what all get who have no others.
  Problem whole = problem;
  if (problem.cls.collective == Collective::kReduceScatter) {
    whole.cls.collective = Collective::kAllReduce;
  } else if (problem.cls.collective == Collective::kAllToAll) {
    whole.cls.collective = Collective::kAllGather;
  }
  COTUNE_TRY(const Program program, Program::SingleCollective(whole.cls));
  std::vector<std::vector<std::vector<std::byte>>> inputs;
  for (const auto& block : blocks) inputs.push_back({block});
  COTUNE_TRY(const auto outputs, EvaluateProgramOnRank(program.graph(), program.RowsAt(whole),
                                                       whole.cls.world_size, 0, inputs));
  return *outputs.front();
}

Result<std::vector<std::byte>> ExpectedBytesOfBlocks(const Problem& problem,
                                                     const SentByRanks& blocks) {
  COTUNE_RETURN_IF_ERROR(CheckSent(problem, problem.count, blocks));
  const Problem whole = Reduces(problem.cls.collective) ? problem : AsMovedBits(problem);
  const uint64_t size = SizeBytes(whole.cls.dtype);
  std::vector<std::byte> bytes(whole.recv_elements() * size);
  Problem part = whole;
  for (uint64_t first = 0; first < whole.count; first += part.count) {
    part.count =
        std::min(whole.count - first, std::max<uint64_t>(1, kElementsAtOnce / blocks.size()));
    SentByRanks cut;
    for (const auto& block : blocks) cut.push_back(Cut(block, first * size, part.count * size));
    COTUNE_TRY(const auto value, ExpectedValueOfBlocks(part, cut));
    const std::vector<std::byte> received = Encode(value);
    for (uint64_t i = 0; i < part.recv_elements() / part.count; ++i) {
      std::memcpy(bytes.data() + (i * whole.count + first) * size,
                  received.data() + i * part.count * size, part.count * size);
    }
  }
  return bytes;
}

}  // namespace cotune
