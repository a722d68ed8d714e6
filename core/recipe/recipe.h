// The steps of a program: backend steps, which a choice runs, and parts between them.
#ifndef COTUNE_CORE_RECIPE_RECIPE_H_
#define COTUNE_CORE_RECIPE_RECIPE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/recipe/input_map.h"

namespace cotune {

// The place of a value: inputs of the program first, then its outputs, then shares of inputs, then
// temporaries. A share lies inside of its input. An output that overwrites an input lies in that
// input's slot. A value that the last step to read it turns into an output of the same type lies in
// that output's.
using SlotIndex = int32_t;

// Runs by a backend's choice, which the id of the recipe names: a collective or a bucket, alone or
// with local operations around it.
struct BackendStep {
  // Its nodes in the graph of the recipe, ascending. Several are a bucket: they run as one.
  std::vector<size_t> collectives;

  size_t first() const { return collectives.front(); }
  bool is_bucket() const { return collectives.size() > 1; }
};

// Runs on each rank alone.
struct PartStep {};

struct RecipeStep {
  std::variant<BackendStep, PartStep> work;
  // The step runs these nodes of the recipe's graph, by ascending index. `program` is the graph
  // that they make by themselves; that of a part is lowered.
  std::vector<size_t> nodes;
  ProgramGraph program;
  // The slots of the operands and values: one for each input and output of `program`; of a bucket
  // in the order of their addresses.
  std::vector<SlotIndex> inputs;
  std::vector<SlotIndex> outputs;

  const BackendStep* backend_step() const { return std::get_if<BackendStep>(&work); }
  bool is_part() const { return backend_step() == nullptr; }
  // Returns true for a bucket without local operations. It is asked for as one collective of a
  // packed value, in which its operands lie one after another. A backend that runs a bucket with
  // local operations packs by itself.
  bool is_packed() const {
    return !is_part() && backend_step()->is_bucket() &&
           backend_step()->collectives.size() == nodes.size();
  }
};

// A value that only steps see. It is one piece of a packed value, or has memory of its own.
struct RecipeTemporary {
  ValueIndex value = 0;   // a value of the recipe's graph
  size_t first_step = 0;  // that defines it
  size_t last_step = 0;   // that reads it
};

// Plain data; follows from the program's graph and an id alone, so that all ranks have the same
// one.
struct Recipe {
  // The program, or an equal one with the same outputs and other operations, which reads the inputs
  // of the program or shares of them.
  ProgramGraph graph;
  InputMap inputs;
  std::vector<RecipeStep> steps;
  std::vector<RecipeTemporary> temporaries;
  // The pieces of each packed value, in the order of their addresses. They are temporaries.
  std::vector<std::vector<ValueIndex>> packs;

  // The indexes of the steps that choices run, in the order of the steps of an id: by their
  // collectives in the graph. They may run in another order.
  std::vector<size_t> backend_steps() const;

  SlotIndex first_output() const { return static_cast<SlotIndex>(inputs.program_inputs); }
  SlotIndex first_share() const {
    return first_output() + static_cast<SlotIndex>(graph.outputs().size());
  }
  SlotIndex first_temporary() const {
    return first_share() + static_cast<SlotIndex>(inputs.share_count());
  }
};

// A backend step as its backend is asked for it.
struct BackendCall {
  // A single collective, which may be that of a packed value, or a region: one collective or a
  // bucket with local operations around it.
  Program program;
  Problem problem;  // that of the program's anchor
  // Why it runs on plain buffers although the operands of the program are registered; "" if it does
  // not, or they are not.
  std::string why_plain;
};
// The calls of the backend steps at R rows of a program that the recipe runs, in the order of
// Recipe::backend_steps(). If the program's operands are registered, so are the buffers of a step
// whose operands and values all are such operands. `rounds_values` is that of GroupShape for the
// regions. kUsage: the graph does not fit the group of the program, or
// a step cannot be sized by its collective. kUnsupported: the recipe has shares of R rows, and R is
// no multiple of the number of ranks; or a packed value would be too large.
Result<std::vector<BackendCall>> BackendCalls(const Recipe& recipe, const Program& program,
                                              uint64_t rows, uint64_t topology_digest,
                                              bool rounds_values = false);

// Each piece of a packed value begins at a multiple of so many bytes. The bytes between two pieces
// take part in the collective and are never read.
inline constexpr uint64_t kPieceAlignmentBytes = 256;
// A packed value has at most so many bytes.
inline constexpr uint64_t kPackedBytesMax = uint64_t{1} << 30;
// The bytes of a packed value at R rows.
uint64_t PackedBytes(const ProgramGraph& graph, const std::vector<ValueIndex>& pieces,
                     int32_t world_size, uint64_t rows);

// Places of the temporaries at R rows. Two that are never alive at the same time may share memory;
// the pieces of a packed value lie one after another.
struct TemporaryLayout {
  // Multiples of kPieceAlignmentBytes, in the order of the temporaries.
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;  // in all
};
TemporaryLayout LayOut(const Recipe& recipe, int32_t world_size, uint64_t rows);

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_RECIPE_H_
