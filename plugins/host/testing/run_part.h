// Runs parts on host memory in tests, and compares what they give.
#ifndef COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_
#define COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"
#include "plugins/sdk/testing/part_data.h"

namespace cotune::host {

using sdk::Difference;
using sdk::NaivePart;
using sdk::PartArray;
using sdk::PartBuilder;
using sdk::PartBytes;
using sdk::PartElement;
using sdk::PartOperand;
using sdk::RandomArray;
using sdk::RandomInputs;
using sdk::SetPartElement;

// Every vector unit that this processor has and the library was compiled for.
void OnEveryTarget(const std::function<void(const std::string&)>& body);

// Runs a part on copies of its inputs that begin `shift` elements behind an aligned address, and
// fails when it writes beyond an output or into an input that no output overwrites.
std::vector<PartArray> RunPart(const sdk::Program& program, const std::vector<PartArray>& inputs,
                               size_t shift = 0, uint64_t rows_at_once = 0);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_RUN_PART_H_
