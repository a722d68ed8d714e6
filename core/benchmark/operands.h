// The data of correctness runs: small integers that every dtype holds exactly, so that the right
// answer is known on every rank without communication and does not depend on the order of
// summation.
#ifndef COTUNE_CORE_BENCHMARK_OPERANDS_H_
#define COTUNE_CORE_BENCHMARK_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/problem/problem.h"

namespace cotune {

// A part of a buffer, in which the same values come again and again.
struct OperandBlock {
  uint64_t begin_bytes = 0;
  uint64_t bytes = 0;
  std::vector<std::byte> period;  // what it begins with; may be more than the block
};

// The content of one rank's send buffer: send_elements() of the dtype, without gaps. `salt` makes
// runs differ, so that a result left over from the run before does not pass.
std::vector<OperandBlock> SendBlocks(const Problem& problem, int rank, uint32_t salt);

// The same for timed calls in place, which compute with the results of earlier ones: terms of sums
// are 0, factors are 1, and other data is that of the first salt.
std::vector<OperandBlock> TimedSendBlocks(const Problem& problem, int rank);

// The right content of the receive buffer of `rank`, recv_elements() of the dtype without gaps, by
// the reference evaluator. It computes a period of the data, so that every size costs the same.
Result<std::vector<OperandBlock>> ExpectedBlocks(const Problem& problem, int rank, uint32_t salt);

// As much of the block as there is room for, from its beginning on.
void FillFront(const OperandBlock& block, std::span<std::byte> front);

// Elements of one rank's receive buffer, recv_elements() long, that are not right. Moved data has
// to have the same bits, and what is reduced lies within the evaluator's bounds: they are 0 for
// this data, except for averages of floats over a number of ranks that is no power of two. Those
// may be off by two units in the last place, for a multiplication by the reciprocal.
Result<uint64_t> CountWrongElements(const Problem& problem, int rank, uint32_t salt,
                                    std::span<const std::byte> recv);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_OPERANDS_H_
