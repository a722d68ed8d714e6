// The fake backend: choices, costs, delays and failures by script, over the job's store. For tests
// and for trying out what cotune does with a backend that misbehaves.
#ifndef COTUNE_PLUGINS_FAKE_BACKEND_H_
#define COTUNE_PLUGINS_FAKE_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// Constant; lives as long as the program. The results are right, for every collective, type and
// reduction, in place or not, 1 to 128 ranks, in threads or processes, unless the setting "script"
// (script.h) says otherwise.
const cotune_backend_api_t* FakeBackendApi();

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_BACKEND_H_
