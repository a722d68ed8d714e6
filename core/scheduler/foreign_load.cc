#include "core/scheduler/foreign_load.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/usable_processors.h"

namespace cotune {
namespace {

// Ranks that may use the same processors.
struct SharedSet {
  int64_t own_ns = 0;
  // The times of the rank that saw the most idle time: all see the same processors, at moments
  // that differ a little.
  int64_t busy_ns = 0;
  int64_t capacity_ns = 0;
};

}  // namespace

bool IsObserved(const std::string& usable, int64_t capacity_ns) {
  const auto processors = static_cast<int64_t>(ProcessorsIn(usable).size());
  return processors > 0 && capacity_ns >= kObservedMinNs * processors;
}

std::optional<double> ForeignShare(std::span<const ProcessorUse> ranks) {
  std::map<std::string, SharedSet> sets;
  for (const ProcessorUse& rank : ranks) {
    if (!IsObserved(rank.usable, rank.capacity_ns)) return std::nullopt;
    const auto [at, is_new] = sets.try_emplace(rank.usable);
    SharedSet& set = at->second;
    set.own_ns += rank.own_ns;
    const bool has_more_idle = rank.capacity_ns - rank.busy_ns > set.capacity_ns - set.busy_ns;
    if (is_new || has_more_idle) {
      set.busy_ns = rank.busy_ns;
      set.capacity_ns = rank.capacity_ns;
    }
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
    const auto foreign_ns = static_cast<double>(set.busy_ns - set.own_ns);
    largest = std::max(largest, foreign_ns / static_cast<double>(set.capacity_ns));
  }
  return largest;
}

}  // namespace cotune
