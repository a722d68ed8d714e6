// Cuts a region, a collective with local operations around it, into three: the operations before
// the collective, the collective, and the operations after it. A bucket, which is a region of
// several collectives, becomes one collective of a packed value and as many cuts.
#ifndef COTUNE_PLUGINS_HOST_REGION_CUT_H_
#define COTUNE_PLUGINS_HOST_REGION_CUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// The operations on one side of the collective, as a program without a collective whose values of
// many rows all have as many rows as the collective's value on that side.
struct RegionSide {
  static constexpr int kCollectiveValue = -1;

  sdk::Program program;
  std::vector<int> inputs;      // for each input, the input of the region, or kCollectiveValue
  std::vector<size_t> outputs;  // for each output, the output of the region; none before the
                                // collective, whose one output is the collective's operand
};

// One collective of a region with the operations around it.
struct RegionMember {
  std::optional<RegionSide> before;
  std::optional<RegionSide> after;
  int operand = 0;       // the input of the region that is the operand, if nothing is before it
  size_t output = 0;     // the output of the region that is the value, if nothing is after it
  uint64_t columns = 1;  // a row of the collective's operand, and of its value
  // Elements [begin, begin + count) of what the region's problem moves are this collective's.
  uint64_t begin = 0;
  uint64_t count = 0;
  // An output overwrites the input that the collective reads, if nothing is before it.
  bool overwrites_operand = false;
};

// Plain data, a function of the region alone.
struct RegionCut {
  Problem problem;  // that of the packed value if it is a bucket
  std::vector<RegionMember> members;

  bool is_bucket() const { return members.size() > 1; }
};

// COTUNE_UNSUPPORTED with a reason for people: a value that both sides read, values whose rows are
// not the collective's, or several collectives that are no bucket (see CutBucket). Pure.
Result<RegionCut> CutRegion(const sdk::Program& region);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_REGION_CUT_H_
