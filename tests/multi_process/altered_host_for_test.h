// The host backend with one thing wrong on one rank, for tests.
#ifndef COTUNE_TESTS_MULTI_PROCESS_ALTERED_HOST_FOR_TEST_H_
#define COTUNE_TESTS_MULTI_PROCESS_ALTERED_HOST_FOR_TEST_H_

#include <string>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

enum class Alteration {
  kHangs,         // progress of the choice never comes back on that rank until the group is aborted
  kWrongValue,    // the choice's result is off by one element on that rank
  kListsAnother,  // that rank lists one choice less, against the rule of the ABI
  kOtherVersion,  // that rank has another version of the backend
};

// Call it in the rank's process before the job is joined; once a process. `choice` is a name of the
// ABI; ranks other than `rank` get the backend as it is.
const cotune_backend_api_t* AlteredHost(Alteration alteration, int rank, const std::string& choice,
                                        int own_rank);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_ALTERED_HOST_FOR_TEST_H_
