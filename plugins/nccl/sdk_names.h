// The names of plugins/sdk that this backend uses throughout.
#ifndef COTUNE_PLUGINS_NCCL_SDK_NAMES_H_
#define COTUNE_PLUGINS_NCCL_SDK_NAMES_H_

#include "plugins/sdk/element_type.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/problem.h"

namespace cotune::nccl {

using sdk::Collective;
using sdk::ElementType;
using sdk::Fail;
using sdk::Failure;
using sdk::Problem;
using sdk::Reduction;
using sdk::Result;

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_SDK_NAMES_H_
