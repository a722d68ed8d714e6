// Functions of the program that uses the C API, as a backend.
#ifndef COTUNE_INTEGRATION_CAPI_CALLER_FUNCTIONS_H_
#define COTUNE_INTEGRATION_CAPI_CALLER_FUNCTIONS_H_

#include <memory>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "integration/capi/cotune.h"

namespace cotune::capi {

// The backend whose choices are these functions. It copies all of `given` but code and contexts,
// which have to stay valid as long as the backend and its groups. On host memory each of its groups
// runs functions on a thread of its own, because a function may never return: its call is given up
// then, and the function is left with copies of the operands. kUsage: a field is wrong.
Result<std::shared_ptr<Backend>> MakeFunctionsBackend(const cotune_functions& given);

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_CALLER_FUNCTIONS_H_
