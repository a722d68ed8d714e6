// The store of a program that uses the C API, as the rendezvous of a job.
#ifndef COTUNE_INTEGRATION_CAPI_CALLER_STORE_H_
#define COTUNE_INTEGRATION_CAPI_CALLER_STORE_H_

#include <memory>
#include <string>

#include "core/base/status.h"
#include "integration/capi/cotune.h"
#include "sync/socket/rendezvous_store.h"

namespace cotune::capi {

// The rendezvous of the job with this id. kUsage for a store that is not filled in. Each call of
// the program's functions runs on a thread of its own, which is left behind when a function does
// not return: the caller of cotune must get its error all the same.
Result<std::shared_ptr<sync::RendezvousStore>> MakeCallerStore(const cotune_store& given,
                                                               const std::string& job_id);

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_CALLER_STORE_H_
