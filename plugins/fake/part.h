// Runs a part, a program without a collective, by the reference evaluator.
#ifndef COTUNE_PLUGINS_FAKE_PART_H_
#define COTUNE_PLUGINS_FAKE_PART_H_

#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::fake {

// Computes every value of the part from `inputs` and writes the outputs when all are there, so that
// an output may overwrite an input. Every value is rounded to its dtype at its operation, which is
// right with COTUNE_PROGRAM_ROUNDS_VALUES and without. The operands fit the part
// (sdk::CheckOperands). COTUNE_INTERNAL: the evaluator refuses an operation, with its reason.
sdk::Result<void> RunPart(const sdk::Program& part, const void* const* inputs,
                          void* const* outputs);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_PART_H_
