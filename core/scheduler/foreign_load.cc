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

constexpr int64_t kObservedMinNs = 200'000'000;
constexpr int64_t kObservedEachMinNs = 50'000'000;

double Share(int64_t part_ns, int64_t capacity_ns) {
  return static_cast<double>(part_ns) / static_cast<double>(capacity_ns);
}

}  // namespace

bool IsObserved(const std::string& usable, int64_t capacity_ns) {
  const auto processors = static_cast<int64_t>(ProcessorsIn(usable).size());
  return processors > 0 && capacity_ns >= std::max(kObservedMinNs, kObservedEachMinNs * processors);
}

std::optional<double> ForeignShare(std::span<const ProcessorUse> ranks) {
  std::map<std::string, SharedSet> sets;
  for (const ProcessorUse& rank : ranks) {
    if (!IsObserved(rank.usable, rank.capacity_ns)) return std::nullopt;
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
