// The data of correctness runs: small integers that every dtype holds exactly, so that the right
// answer is known on every rank without communication and does not depend on the order of
// summation.
#ifndef COTUNE_CORE_BENCHMARK_OPERANDS_H_
#define COTUNE_CORE_BENCHMARK_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// The right content of the receive buffer of `rank`: recv_elements() of the dtype, without gaps.
std::vector<OperandBlock> ExpectedBlocks(const Problem& problem, int rank, uint32_t salt);

// As much of the block as there is room for, from its beginning on.
void FillFront(const OperandBlock& block, std::span<std::byte> front);

// Elements of one rank's receive buffer, recv_elements() long, that differ from the naive result.
// Exact for everything but the average of floats, where two units in the last place are allowed for
// a multiplication by the reciprocal.
uint64_t CountWrongElements(const Problem& problem, int rank, uint32_t salt,
                            std::span<const std::byte> recv);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_OPERANDS_H_
