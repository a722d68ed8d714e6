// The backend of host memory that a test is linked with. The suites in this folder are the same for
// all of them; each backend says here which of its choices they take.
#ifndef COTUNE_PLUGINS_TESTING_TESTED_BACKEND_H_
#define COTUNE_PLUGINS_TESTING_TESTED_BACKEND_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::backend_test {

// A rank that dies or stops in the middle of calls.
struct Fault {
  const char* name;
  uint32_t collective;
  const char* choice;
  int victim;
};

// Rank 2 calls `other` where the others call `usual`; what is said of each.
struct Mismatch {
  const char* name;
  cotune_problem_t usual;
  const char* usual_choice;
  cotune_problem_t other;
  const char* other_choice;
  const char* usual_text;
  const char* other_text;
  int ranks = 4;
};

struct TestedBackend {
  const cotune_backend_api_t* api;
  // Choices for all_reduce, and one for broadcast.
  const char* small;
  const char* large;
  const char* ring;
  const char* tree;
  const char* broadcast;
  std::vector<Fault> faults;
  std::vector<Mismatch> mismatches;
  // Ranks meet in memory before all have come, so that one which dies then is seen at once.
  bool meets_in_memory = false;
  // A rank that only sends may be done with a call that others never make.
  bool sends_ahead = false;
};

// Defined by each backend.
const TestedBackend& Tested();

}  // namespace cotune::backend_test

#endif  // COTUNE_PLUGINS_TESTING_TESTED_BACKEND_H_
