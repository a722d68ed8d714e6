// A call of the C API as a call of the dispatcher.
#ifndef COTUNE_INTEGRATION_CAPI_CALL_ARGUMENTS_H_
#define COTUNE_INTEGRATION_CAPI_CALL_ARGUMENTS_H_

#include <cstdint>

#include "core/base/status.h"
#include "integration/capi/cotune.h"
#include "integration/dispatcher.h"

namespace cotune::capi {

// Without buffers. kUsage for a value that is no constant of cotune.h, and for buffers of
// `world_size` blocks that no memory can hold; whether the arguments fit together is the
// dispatcher's question.
Result<Call> MakeCall(cotune_collective collective, cotune_dtype dtype, cotune_reduction reduction,
                      int32_t root, uint64_t count, int world_size);

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_CALL_ARGUMENTS_H_
