// From the ABI's problem to this backend's, with a reason for every no.
#ifndef COTUNE_PLUGINS_HOST_PROBLEM_CHECK_H_
#define COTUNE_PLUGINS_HOST_PROBLEM_CHECK_H_

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/host/failure.h"
#include "plugins/host/schedule.h"

namespace cotune::host {

// COTUNE_UNSUPPORTED for what this backend does not do (device memory, unknown types, more than
// kMaxRanks ranks, several hosts), COTUNE_INVALID_ARGUMENT for what nobody can (a root that is no
// rank, bytes that do not fit the count). Pure.
Result<Problem> CheckProblem(const cotune_problem_t& problem);

// Whether the caller's buffers fit the problem on this rank: not null, in place exactly where the
// problem says so, and otherwise without overlap. COTUNE_INVALID_ARGUMENT. Pure.
Result<void> CheckBuffers(const Problem& problem, int rank, const void* send, const void* receive);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_PROBLEM_CHECK_H_
