// From a program of core to the ABI's struct.
#ifndef COTUNE_PLUGINS_LOADER_PROGRAM_LISTING_H_
#define COTUNE_PLUGINS_LOADER_PROGRAM_LISTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/program.h"
#include "plugins/api/cotune_program_v1.h"

namespace cotune {

// The struct with all that it points to; valid as long as the object, which does not move.
class AbiProgram {
 public:
  // graph: lowered. rows: R.
  AbiProgram(const ProgramGraph& graph, uint64_t rows, const GroupShape& group,
             uint64_t topology_digest, bool rounds_values);
  AbiProgram(const AbiProgram&) = delete;
  AbiProgram& operator=(const AbiProgram&) = delete;

  const cotune_program_t& program() const { return program_; }

 private:
  std::vector<cotune_value_t> values_;
  std::vector<cotune_node_t> nodes_;
  std::vector<int32_t> outputs_;
  std::vector<int32_t> output_into_;
  std::string text_;
  cotune_program_t program_{};
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_PROGRAM_LISTING_H_
