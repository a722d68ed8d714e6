// The words that this backend takes from plugins/border.
#ifndef COTUNE_PLUGINS_HOST_BORDER_NAMES_H_
#define COTUNE_PLUGINS_HOST_BORDER_NAMES_H_

#include "plugins/border/element_type.h"
#include "plugins/border/failure.h"
#include "plugins/border/problem.h"

namespace cotune::host {

using border::CheckBuffers;
using border::CheckProblem;
using border::Collective;
using border::ElementBytes;
using border::ElementType;
using border::ElementTypeFromAbi;
using border::ElementTypeToAbi;
using border::Fail;
using border::Failure;
using border::IsNarrowFloat;
using border::kElementTypes;
using border::kReductions;
using border::PartialBytes;
using border::Problem;
using border::ProblemBytes;
using border::ProblemLimits;
using border::Reduces;
using border::Reduction;
using border::ReductionFromAbi;
using border::Report;
using border::Result;

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_BORDER_NAMES_H_
