// The call of a rank as its kernels compare it with those of the peers: from the problem, and back
// to words for errors.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_CALL_RECORD_H_
#define COTUNE_PLUGINS_CUDA_GROUP_CALL_RECORD_H_

#include <string>
#include <string_view>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// Without the number of the launch, which the kernel adds. Equal on all ranks for calls that fit
// together: whether a call is in place is not in it. A count is cut to its lowest 42 bits. Pure.
CallRecord RecordOf(const sdk::Problem& problem, std::string_view choice);

// "all_reduce of 1024 f32 (sum) by one_shot?blocks=4&...", for a record of any rank. A choice that
// is not in this rank's list of choices for the problem is called unknown; a step of a program is
// told without its choice, as "... in a program". Pure.
std::string CallText(const CallRecord& record, int world_size, const ChoiceLimits& limits);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_CALL_RECORD_H_
