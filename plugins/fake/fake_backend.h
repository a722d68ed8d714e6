// The fake backend: choices, costs and faults by script, real results. For tests, and to try out
// what cotune does with a backend that misbehaves. Its data goes through the job's store.
#ifndef COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_
#define COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// The table, for registration in the process. Constant. Results are right for every collective,
// type and reduction, in place or not, 1 to 128 ranks, in threads or processes, unless the setting
// "fake.script" (script.h) says otherwise. Without a script there is one choice, "plain".
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_
