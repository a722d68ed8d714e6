// Ranks and data of the tests of all backends, by their short names.
#ifndef COTUNE_PLUGINS_HOST_TESTING_HOST_RANKS_H_
#define COTUNE_PLUGINS_HOST_TESTING_HOST_RANKS_H_

#include "plugins/host/schedule.h"
#include "plugins/testing/exact_data.h"
#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::host {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_HOST_RANKS_H_
