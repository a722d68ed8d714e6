// Makes the instructions of a program without a collective.
#ifndef COTUNE_PLUGINS_HOST_ELEMENT_PLANNER_H_
#define COTUNE_PLUGINS_HOST_ELEMENT_PLANNER_H_

#include "plugins/host/element_plan.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// COTUNE_UNSUPPORTED for an operation that does not compute with its dtype.
Result<ElementPlan> PlanElements(const sdk::Program& program);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_PLANNER_H_
