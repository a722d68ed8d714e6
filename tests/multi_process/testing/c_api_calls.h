// Calls of all collectives by the C API, and the values that they must give.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_CALLS_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {

inline constexpr int kWorldSize = 4;

// A rank's complaint; the tests expect none.
void Complain(TestLink& link, const cotune_group* group, const std::string& what);

float Sent(int rank, uint64_t i);

std::vector<float> SendBuffer(int rank, uint64_t elements);

// All five at this count, against the reference evaluator; `ids[i]` is what rank i of the group
// calls itself in its data.
void RunAllCollectives(cotune_group* group, uint64_t count, const std::vector<int>& ids,
                       TestLink& link);

// All five with one buffer for both, at its place in the larger one where they differ.
void RunAllInPlace(cotune_group* group, uint64_t count, TestLink& link);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_C_API_CALLS_H_
