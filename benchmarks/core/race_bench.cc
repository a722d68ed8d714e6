// Racing against benchmarking every choice 50 times: how much cheaper, and how far the winner is
// from the best.
//
// The noise model: true slow-downs exp(Exp(mean 0.7)) over the best choice, one-sided log-normal
// noise per sample (sigma 3 % or 10 %), 1 % spikes of 2 to 10 times, and a common drift of 1 %
// (first-order autoregressive), the same for all choices of a round. Arguments: choices, sigma in
// percent. Counters: times_cheaper (time, not samples), regret_p95_percent, regret_p99_percent,
// cells_over_2_percent.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/benchmark/race.h"

namespace cotune {
namespace {

constexpr int kBaselineSamples = 50;

// One cell of the model.
class NoisyCell {
 public:
  NoisyCell(size_t choices, double sigma, uint64_t seed) : random_(seed), noise_(0, sigma) {
    std::exponential_distribution<double> slower(1 / 0.7);
    for (size_t i = 0; i < choices; ++i) base_ns_.push_back(100'000 * std::exp(slower(random_)));
  }

  double Sample(size_t choice) {
    drift_ = 0.9 * drift_ + 0.01 * std::sqrt(1 - 0.81) * normal_(random_);
    double time_ns = base_ns_[choice] * std::exp(std::fabs(noise_(random_)) + drift_);
    if (uniform_(random_) < 0.01) time_ns *= 2 + 8 * uniform_(random_);
    return time_ns;
  }

  double SlowdownPercent(size_t choice) const {
    return 100 * (base_ns_[choice] / *std::min_element(base_ns_.begin(), base_ns_.end()) - 1);
  }
  double BaselineNs() const {
    double sum = 0;
    for (double base : base_ns_) sum += kBaselineSamples * base;
    return sum;
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::vector<double> base_ns_;
  double drift_ = 0;
};

// Races one cell; returns the winner and adds the time spent.
size_t RaceCell(NoisyCell& cell, size_t choices, double& spent_ns) {
  Race race(choices, 0, RaceRules{});
  for (auto order = race.NextRound(); !order.empty(); order = race.NextRound()) {
    std::vector<int64_t> times_ns;
    for (size_t choice : order) {
      const double time_ns = cell.Sample(choice);
      spent_ns += time_ns;
      times_ns.push_back(static_cast<int64_t>(time_ns));
    }
    race.AddRound(times_ns);
  }
  size_t winner = 0;
  int64_t best_ns = INT64_MAX;
  for (size_t i = 0; i < choices; ++i) {
    const int64_t median_ns = MedianWithInterval(race.samples_ns(i)).median_ns;
    if (!race.is_eliminated(i) && median_ns < best_ns) {
      best_ns = median_ns;
      winner = i;
    }
  }
  return winner;
}

void BM_RaceAgainstFiftySamplesEach(benchmark::State& state) {
  const auto choices = static_cast<size_t>(state.range(0));
  const double sigma = static_cast<double>(state.range(1)) / 100;
  std::vector<double> regret_percent;
  double spent_ns = 0;
  double baseline_ns = 0;
  uint64_t seed = 1;
  for (auto _ : state) {
    NoisyCell cell(choices, sigma, seed++);
    const size_t winner = RaceCell(cell, choices, spent_ns);
    regret_percent.push_back(cell.SlowdownPercent(winner));
    baseline_ns += cell.BaselineNs();
  }
  std::sort(regret_percent.begin(), regret_percent.end());
  const auto quantile = [&](double q) {
    return regret_percent[static_cast<size_t>(q * static_cast<double>(regret_percent.size() - 1))];
  };
  const auto over = std::count_if(regret_percent.begin(), regret_percent.end(),
                                  [](double percent) { return percent > 2; });
  state.counters["times_cheaper"] = baseline_ns / spent_ns;
  state.counters["regret_p95_percent"] = quantile(0.95);
  state.counters["regret_p99_percent"] = quantile(0.99);
  state.counters["cells_over_2_percent"] =
      100.0 * static_cast<double>(over) / static_cast<double>(regret_percent.size());
}
BENCHMARK(BM_RaceAgainstFiftySamplesEach)
    ->ArgNames({"choices", "sigma_percent"})
    ->ArgsProduct({{12, 60}, {3, 10}})
    ->Iterations(2000);

}  // namespace
}  // namespace cotune

BENCHMARK_MAIN();
