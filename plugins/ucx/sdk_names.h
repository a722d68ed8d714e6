// The words that this backend takes from plugins/sdk.
#ifndef COTUNE_PLUGINS_UCX_SDK_NAMES_H_
#define COTUNE_PLUGINS_UCX_SDK_NAMES_H_

#include "plugins/sdk/element_type.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/problem.h"

namespace cotune::ucx {

using sdk::Collective;
using sdk::ElementBytes;
using sdk::Fail;
using sdk::Failure;
using sdk::PartialBytes;
using sdk::Problem;
using sdk::ProblemBytes;
using sdk::Propagate;
using sdk::Reduces;
using sdk::Reduction;
using sdk::Result;

inline constexpr int kRanksMax = 64;

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_SDK_NAMES_H_
