// The names of plugins/border that this backend uses throughout.
#ifndef COTUNE_PLUGINS_NCCL_BORDER_NAMES_H_
#define COTUNE_PLUGINS_NCCL_BORDER_NAMES_H_

#include "plugins/border/element_type.h"
#include "plugins/border/failure.h"
#include "plugins/border/problem.h"

namespace cotune::nccl {

using border::Collective;
using border::ElementType;
using border::Fail;
using border::Failure;
using border::Problem;
using border::Reduction;
using border::Result;

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_BORDER_NAMES_H_
