// The order in which a program without a collective is computed on host memory: which values are
// computed over blocks of columns, and in which walk over the blocks of a row.
#ifndef COTUNE_PLUGINS_HOST_PART_ANALYSIS_H_
#define COTUNE_PLUGINS_HOST_PART_ANALYSIS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

bool IsRowReduction(uint32_t kind);
// Returns true if a lane holds numbers that the dtype does not.
bool IsNarrow(sdk::ValueDtype dtype);

// Values are named by their index. The program outlives this object.
class PartAnalysis {
 public:
  explicit PartAnalysis(const sdk::Program& program);

  const sdk::Value& value(int index) const { return program_.values[index]; }
  bool IsInput(int index) const { return index < program_.input_count; }
  const sdk::ProgramNode& NodeOf(int index) const {
    return program_.nodes[index - program_.input_count];
  }
  bool IsSingle(int index) const { return value(index).rows_kind == COTUNE_ROWS_ONE; }
  Lane LaneAt(int index) const { return LaneOf(value(index).dtype); }
  // Computed over blocks; all others are one number a row.
  bool IsWide(int index) const {
    return value(index).columns > 1 || (!IsSingle(index) && IsFlat(value(index).rows_kind));
  }
  // Returns true if lanes of the value are rounded to its dtype when it is computed, not only when
  // it is stored.
  bool IsRounded(int index) const;
  // The value whose lanes this one has: a cast between floats changes none unless it rounds.
  int RootOf(int index) const { return root_[index]; }
  bool HasLoop(uint32_t rows_kind) const;
  // Whether all values of the kind have the same columns and none depends on where a row ends.
  bool IsFlat(uint32_t rows_kind) const;

  // A walk over blocks of level n reads row reductions whose operands have level n-1.
  //
  // Whether the node walks over blocks: row reductions of many columns do, and give one number.
  bool ReadsBlocks(int index) const;
  bool ReducesBlocks(int index) const { return ReadsBlocks(index) && !IsWide(index); }
  int LevelOf(int index) const { return level_[index]; }
  int LevelOfPass(int index) const { return level_[index] - (ReducesBlocks(index) ? 1 : 0); }
  // -1: no walk over blocks reads the value.
  int LastLevelOfUse(int index) const { return last_use_[index]; }
  // An output that overwrites an input is stored in the last walk that reads that input. An output
  // that is itself an input is read where it is stored.
  int StoreLevelOf(size_t output) const { return store_level_[output]; }
  // Whether a later walk, or another loop, reads the value.
  bool IsKept(int index) const {
    return !IsInput(index) && (IsSingle(index) || last_use_[index] > level_[index]);
  }

 private:
  bool FindFlat(uint32_t rows_kind) const;
  bool SharesLanes(int index) const;
  void SetRoots();
  void SetUses();
  void SetStoreLevels();

  const sdk::Program& program_;
  mutable std::map<uint32_t, std::optional<bool>> is_flat_;
  std::vector<int> root_;
  std::vector<int> level_;
  std::vector<int> last_use_;
  std::vector<int> store_level_;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_PART_ANALYSIS_H_
