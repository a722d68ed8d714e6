// The words that this backend takes from plugins/sdk.
#ifndef COTUNE_PLUGINS_HOST_SDK_NAMES_H_
#define COTUNE_PLUGINS_HOST_SDK_NAMES_H_

#include "plugins/sdk/element_type.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/float16.h"
#include "plugins/sdk/problem.h"

namespace cotune::host {

using sdk::Bf16FromF32;
using sdk::CheckBuffers;
using sdk::CheckProblem;
using sdk::Collective;
using sdk::ElementBytes;
using sdk::ElementType;
using sdk::ElementTypeFromAbi;
using sdk::ElementTypeToAbi;
using sdk::F16FromF32;
using sdk::F32FromBf16;
using sdk::F32FromF16;
using sdk::Fail;
using sdk::Failure;
using sdk::IsNarrowFloat;
using sdk::kElementTypes;
using sdk::kReductions;
using sdk::PartialBytes;
using sdk::Problem;
using sdk::ProblemBytes;
using sdk::ProblemLimits;
using sdk::Reduces;
using sdk::Reduction;
using sdk::ReductionFromAbi;
using sdk::Report;
using sdk::Result;

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_SDK_NAMES_H_
