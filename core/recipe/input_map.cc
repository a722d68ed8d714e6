#include "core/recipe/input_map.h"

#include <algorithm>

namespace cotune {

InputMap InputMap::OfProgram(const ProgramGraph& graph) {
  InputMap map{{}, graph.inputs().size()};
  for (size_t i = 0; i < map.program_inputs; ++i) {
    map.inputs.push_back({static_cast<ValueIndex>(i), false});
  }
  return map;
}

std::vector<ValueIndex> InputMap::Shares() const {
  std::vector<ValueIndex> shares;
  for (const Input& input : inputs) {
    if (input.is_share) shares.push_back(input.of_program);
  }
  return shares;
}

size_t InputMap::share_count() const {
  return static_cast<size_t>(
      std::count_if(inputs.begin(), inputs.end(), [](const Input& each) { return each.is_share; }));
}

bool InputMap::Overlap(ValueIndex a, ValueIndex b) const {
  const auto count = static_cast<ValueIndex>(inputs.size());
  if (a < 0 || b < 0 || a >= count || b >= count) return false;
  return inputs[static_cast<size_t>(a)].of_program == inputs[static_cast<size_t>(b)].of_program;
}

}  // namespace cotune
