// Data of parts, and how two results differ.
#ifndef COTUNE_PLUGINS_SDK_TESTING_PART_DATA_H_
#define COTUNE_PLUGINS_SDK_TESTING_PART_DATA_H_

#include <random>
#include <string>
#include <vector>

#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::sdk {

PartArray RandomArray(const Value& type, std::mt19937_64& random, bool with_special = true);
std::vector<PartArray> RandomInputs(const Program& program, std::mt19937_64& random,
                                    bool with_special = true);

// Empty when all elements are equal in every bit, or both are NaN.
std::string Difference(const std::vector<PartArray>& seen, const std::vector<PartArray>& expected);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_TESTING_PART_DATA_H_
