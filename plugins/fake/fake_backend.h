// The fake backend: scripted costs and faults, real results. For tests; its data goes through the
// job's store.
#ifndef COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_
#define COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// The table, for registration in the process. The script is the setting "fake.script"; without it
// there is one choice, "plain", that takes no longer than it takes.
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_FAKE_BACKEND_H_
