#include "integration/torch/admitted_calls.h"

#include <algorithm>
#include <utility>

namespace cotune::torch_operators {
namespace {

constexpr size_t kRangesMax = 4096;

}  // namespace

uint64_t CallCounters::Calls(uint32_t counter) const {
  return counter < calls_.size() ? calls_[counter] : 0;
}

uint64_t CallCounters::Add(uint32_t counter, uint64_t calls) {
  if (calls == 0) return Calls(counter);
  if (counter >= calls_.size()) calls_.resize(size_t{counter} + 1);
  return calls_[counter] += calls;
}

bool CallCounters::HasRoom(std::span<const uint32_t> counters, uint64_t limit) const {
  for (size_t i = 0; i < counters.size(); ++i) {
    const auto before = counters.first(i);
    const auto same = std::count(before.begin(), before.end(), counters[i]);
    if (Calls(counters[i]) + static_cast<uint64_t>(same) >= limit) return false;
  }
  return true;
}

void AdmittedRanges::Admit(AdmittedCalls calls) {
  if (ranges_.size() >= kRangesMax) ranges_.clear();
  std::erase_if(ranges_, [&](const auto& each) {
    return each.second.first_elements <= calls.last_elements &&
           calls.first_elements <= each.second.last_elements;
  });
  const uint64_t first = calls.first_elements;
  ranges_.emplace(first, std::move(calls));
}

const AdmittedCalls* AdmittedRanges::Find(uint64_t elements) const {
  auto found = ranges_.upper_bound(elements);
  if (found == ranges_.begin()) return nullptr;
  --found;
  return elements <= found->second.last_elements ? &found->second : nullptr;
}

void AdmittedRanges::DropCounted() {
  std::erase_if(ranges_, [](const auto& each) { return !each.second.counters.empty(); });
}

}  // namespace cotune::torch_operators
