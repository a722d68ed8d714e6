// The right result of a collective, by plain loops over all ranks' inputs.
#ifndef COTUNE_PLUGINS_HOST_TESTING_NAIVE_COLLECTIVE_H_
#define COTUNE_PLUGINS_HOST_TESTING_NAIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/host/schedule.h"

namespace cotune::host {

// Elements of the send and of the receive buffer of one rank.
uint64_t SendElements(const Problem& problem);
uint64_t ReceiveElements(const Problem& problem);

// The send buffer of one rank: small whole numbers, other ones for each rank and element, so that
// every order of summing gives the same bits in every type.
std::vector<std::byte> ExactInput(const Problem& problem, int rank);

// Returns what rank `rank` must receive when rank r sends inputs[r]. Sums run in rank order in the
// element type, for 16-bit floats in f32 with one rounding at the end.
std::vector<std::byte> ExpectedOutput(const Problem& problem, int rank,
                                      const std::vector<std::vector<std::byte>>& inputs);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_NAIVE_COLLECTIVE_H_
