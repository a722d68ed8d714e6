// How a program is cut into steps: collectives, which a choice runs, and parts between them.
#ifndef COTUNE_CORE_CHOICE_RECIPE_H_
#define COTUNE_CORE_CHOICE_RECIPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/program_graph.h"

namespace cotune {

// The place of a value: inputs of the program first, then its outputs, then temporaries. An output
// that overwrites an input lies in that input's slot. A value that the last step to read it turns
// into an output of the same type lies in that output's.
using SlotIndex = int32_t;

struct RecipeStep {
  std::optional<size_t> collective;  // its node in the program
  std::optional<ProgramGraph> part;  // lowered; of a step that is no collective
  // The slots of the step's operands and values: one each for a collective, one for each input and
  // output of a part.
  std::vector<SlotIndex> inputs;
  std::vector<SlotIndex> outputs;
};

// A value that only steps see.
struct RecipeTemporary {
  ValueIndex value = 0;
  size_t first_step = 0;  // that defines it
  size_t last_step = 0;   // that reads it
};

// Plain data; follows from the graph alone, so that all ranks have the same one.
struct Recipe {
  std::vector<RecipeStep> steps;
  std::vector<RecipeTemporary> temporaries;
};

// Each collective by itself. Local operations between two collectives are one part, because a
// generator of code makes one loop of them: unfused means "not inside of the collective".
Recipe UnfusedRecipe(const ProgramGraph& graph);

// A collective of a program as the recipe runs it.
struct CollectiveStep {
  Problem problem;
  // Why it runs on plain buffers although the operands of the program are registered; "" where it
  // does not, or they are not.
  std::string why_plain;
};
// The collectives in the order of the program, at R rows. Where the program's operands are
// registered, so are the buffers of a collective whose operand and value both are such operands.
std::vector<CollectiveStep> CollectiveSteps(const Recipe& recipe, const Program& program,
                                            uint64_t rows, uint64_t topology_digest);

// Where temporaries lie at R rows. Two that are never alive at the same time may share memory.
struct TemporaryLayout {
  std::vector<uint64_t> offsets;  // multiples of 256, in the order of the temporaries
  uint64_t bytes = 0;             // in all
};
TemporaryLayout LayOut(const Recipe& recipe, const Program& program, uint64_t rows);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_RECIPE_H_
