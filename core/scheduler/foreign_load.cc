#include "core/scheduler/foreign_load.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/usable_processors.h"

namespace cotune {
namespace {

// The use of processors that some ranks share, in shares of their time. Each rank has observed them
// for a time of its own.
struct SharedSet {
  double own_share = 0;
  // As the rank that saw the most idle time has it: all see the same processors, at moments that
  // differ a little.
  double busy_share = 1;
};

// Systems that count their processors' time count at least this part of it: what is missing are the
// steps of each kind of use.
constexpr int64_t kUncountedPartsMax = 4;

int64_t NumberOf(const std::string& usable) {
  return static_cast<int64_t>(ProcessorsIn(usable).size());
}

double Share(int64_t part_ns, int64_t capacity_ns) {
  return static_cast<double>(part_ns) / static_cast<double>(capacity_ns);
}

}  // namespace

ProcessorUse UseBetween(const std::string& usable, const ProcessorTimes& before,
                        const ProcessorTimes& after) {
  // By the clock: of what the system counts only the idle time has steps then, and a processor that
  // works all the time has none.
  const int64_t capacity_ns = NumberOf(usable) * (after.now_ns - before.now_ns);
  if (after.counted_ns - before.counted_ns < capacity_ns / kUncountedPartsMax) {
    return {.usable = usable};
  }
  return {.usable = usable,
          .own_ns = after.own_ns - before.own_ns,
          .busy_ns = std::max<int64_t>(0, capacity_ns - (after.idle_ns - before.idle_ns)),
          .capacity_ns = capacity_ns};
}

std::optional<double> ForeignShare(std::span<const ProcessorUse> ranks) {
  std::map<std::string, SharedSet> sets;
  for (const ProcessorUse& rank : ranks) {
    const int64_t processors = NumberOf(rank.usable);
    if (processors == 0 || rank.capacity_ns < processors * kObservedMinNs) return std::nullopt;
    SharedSet& set = sets[rank.usable];
    set.own_share += Share(rank.own_ns, rank.capacity_ns);
    set.busy_share = std::min(set.busy_share, Share(rank.busy_ns, rank.capacity_ns));
  }
  std::vector<std::string> lists;
  size_t processors = 0;
  for (const auto& [usable, set] : sets) {
    lists.push_back(usable);
    processors += ProcessorsIn(usable).size();
  }
  if (processors == 0 || CountDistinctProcessors(lists) != processors) return std::nullopt;
  double largest = 0;
  for (const auto& [usable, set] : sets) {
    largest = std::max(largest, set.busy_share - set.own_share);
  }
  return largest;
}

}  // namespace cotune
