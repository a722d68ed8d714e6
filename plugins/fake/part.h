// Runs a part, a program without a collective, and the local operations of a region by the
// reference evaluator.
#ifndef COTUNE_PLUGINS_FAKE_PART_H_
#define COTUNE_PLUGINS_FAKE_PART_H_

#include <cstddef>
#include <vector>

#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::fake {

// The values of one call of a program, in memory of their own. Every value is rounded to its dtype
// at its operation, which is right with COTUNE_PROGRAM_ROUNDS_VALUES and without.
class ProgramRun {
 public:
  // Reads the inputs, which fit the program (sdk::CheckOperands). `program` outlives the run.
  ProgramRun(const sdk::Program& program, const void* const* inputs);

  // Computes the values up to the next collective, which the caller runs, and returns its node;
  // nullptr: all values are there. COTUNE_INTERNAL: the evaluator refuses an operation, with its
  // reason.
  sdk::Result<const sdk::ProgramNode*> Advance();
  // The operand and the value of the collective that Advance has returned.
  const std::byte* operand() const;
  std::byte* value() { return values_.back().data(); }

  // All values are there. An output may overwrite an input.
  void WriteOutputs(void* const* outputs) const;

 private:
  const sdk::Program& program_;
  std::vector<std::vector<std::byte>> values_;  // so far
};

// Computes every value of the part from `inputs` and writes the outputs when all are there.
// Operands and failure as those of ProgramRun.
sdk::Result<void> RunPart(const sdk::Program& part, const void* const* inputs,
                          void* const* outputs);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_PART_H_
