#include <algorithm>
#include <numeric>

#include "core/selection/select_winner.h"

namespace cotune {

size_t MedianIntervalRank(size_t n) {
  // The interval x(k)..x(n+1-k) misses the median with probability 2 P(Bin(n, 1/2) <= k-1). Weights
  // are relative to the middle term, so that nothing underflows for large n.
  constexpr long double kTailMax = 0.005L;
  std::vector<long double> weights(n / 2 + 1, 1.0L);
  for (size_t k = n / 2; k > 0; --k) {
    weights[k - 1] = weights[k] * static_cast<long double>(k) / static_cast<long double>(n - k + 1);
  }
  long double total = 2 * std::accumulate(weights.begin(), weights.end(), 0.0L);
  if (n % 2 == 0) total -= weights.back();
  long double tail = 0;
  size_t rank = 0;
  while (rank < weights.size() && (tail += weights[rank]) <= kTailMax * total) ++rank;
  return rank;
}

MedianInterval MedianWithInterval(std::vector<int64_t> samples_ns) {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  const size_t n = samples_ns.size();
  const int64_t low_middle = samples_ns[(n - 1) / 2];
  const int64_t high_middle = samples_ns[n / 2];
  const size_t rank = std::max<size_t>(MedianIntervalRank(n), 1);
  // Without overflow, whatever the samples are.
  const uint64_t between = static_cast<uint64_t>(high_middle) - static_cast<uint64_t>(low_middle);
  return {low_middle + static_cast<int64_t>(between / 2), samples_ns[rank - 1],
          samples_ns[n - rank]};
}

}  // namespace cotune
