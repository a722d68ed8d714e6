// Programs of core as the SDK has them, and back, so that parts can be compared with the reference
// evaluator.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_PART_GRAPH_H_
#define COTUNE_PLUGINS_CUDA_TESTING_PART_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// A part at so many rows.
sdk::Program PartOf(const ProgramGraph& part, uint64_t rows, uint64_t share_rows);
// A lowered program with collectives, as the backend is asked for it by a group of ranks.
sdk::Program RegionOf(const ProgramGraph& region, uint64_t rows, int world_size);
// The same part without the nodes that no output needs, and each output once. It aborts where the
// graph is refused.
ProgramGraph GraphOf(const sdk::Program& part);
// The inputs that this graph has, ascending.
std::vector<int> InputsOf(const sdk::Program& part);
// For each output of the part that of the graph.
std::vector<size_t> GraphOutputsOf(const sdk::Program& part);
// The parts between the collectives of a program text, lowered.
std::vector<ProgramGraph> PartsOfText(std::string_view text);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_PART_GRAPH_H_
