#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/selection/select_winner.h"

namespace cotune {
namespace {

// Smallest integer whose square is at least a * b.
uint64_t GeometricMeanUp(uint64_t a, uint64_t b) {
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  // The long double root is off by a few units at most; the two loops make it exact.
  auto root = static_cast<Wide>(std::sqrt(static_cast<long double>(a)) *
                                std::sqrt(static_cast<long double>(b)));
  while (root > 0 && (root - 1) * (root - 1) >= product) --root;
  while (root * root < product) ++root;
  return static_cast<uint64_t>(root);
}

}  // namespace

std::vector<SizeRange> MergeRanges(std::span<const std::pair<uint64_t, ChoiceId>> winners) {
  std::vector<SizeRange> ranges;
  for (size_t i = 0; i < winners.size(); ++i) {
    const auto& [bytes, choice] = winners[i];
    COTUNE_CHECK(i == 0 || winners[i - 1].first < bytes, "winners ascend by their bytes");
    if (!ranges.empty() && ranges.back().choice == choice) continue;
    uint64_t first_bytes = 0;
    if (!ranges.empty()) {
      const uint64_t below = winners[i - 1].first;
      first_bytes = std::max(below + 1, GeometricMeanUp(below, bytes));
      ranges.back().end_bytes = first_bytes;
    }
    ranges.push_back({first_bytes, UINT64_MAX, choice});
  }
  return ranges;
}

}  // namespace cotune
