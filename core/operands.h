// The data of correctness runs: small integers that every dtype holds exactly, so that the right
// answer is known on every rank without communication and does not depend on the order of
// summation.
#ifndef COTUNE_CORE_OPERANDS_H_
#define COTUNE_CORE_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/problem.h"

namespace cotune {

// Fills one rank's send buffer, send_elements() long. `salt` makes runs differ, so that a result
// left over from the run before does not pass.
void FillSend(const Problem& problem, int rank, uint32_t salt, std::span<std::byte> send);

// Fills any buffer with bytes that no right answer contains.
void Poison(std::span<std::byte> buffer);

// What the receive buffer of `rank` must hold: recv_elements() of the dtype.
void FillExpected(const Problem& problem, int rank, uint32_t salt, std::span<std::byte> recv);

// Elements of one rank's receive buffer, recv_elements() long, that differ from the naive result.
// Exact for everything but the average of floats, where two units in the last place are allowed for
// a multiplication by the reciprocal.
uint64_t CountWrongElements(const Problem& problem, int rank, uint32_t salt,
                            std::span<const std::byte> recv);

}  // namespace cotune

#endif  // COTUNE_CORE_OPERANDS_H_
