// The result of a collective out of everybody's send buffers, by its definition.
#ifndef COTUNE_PLUGINS_FAKE_GATHER_REDUCE_H_
#define COTUNE_PLUGINS_FAKE_GATHER_REDUCE_H_

#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// Bytes of one rank's send and receive buffer.
uint64_t SendBytes(const cotune_problem_t& problem);
uint64_t RecvBytes(const cotune_problem_t& problem);

// True when the dtype and reduction are among those of the ABI that cotune tunes.
bool CanReduce(const cotune_problem_t& problem);

// The receive buffer of `rank`. sends: [world_size] buffers of SendBytes each; for broadcast only
// the root's is read.
std::string Receive(const cotune_problem_t& problem, const std::vector<std::string>& sends,
                    int32_t rank);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_GATHER_REDUCE_H_
