// Runs parts on host memory in tests, and compares what they give.
#ifndef COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_
#define COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "plugins/host/testing/part_builder.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// Every vector unit that this processor has and the library was compiled for.
void OnEveryTarget(const std::function<void(const std::string&)>& body);

PartArray RandomArray(const sdk::Value& type, std::mt19937_64& random, bool with_special = true);
std::vector<PartArray> RandomInputs(const sdk::Program& program, std::mt19937_64& random,
                                    bool with_special = true);

// Runs a part on copies of its inputs that begin `shift` elements behind an aligned address, and
// fails when it writes beyond an output or into an input that no output overwrites.
std::vector<PartArray> RunPart(const sdk::Program& program, const std::vector<PartArray>& inputs,
                               size_t shift = 0, uint64_t rows_at_once = 0);

// Empty when all elements are equal in every bit, or both are NaN.
std::string Difference(const std::vector<PartArray>& seen, const std::vector<PartArray>& expected);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_
