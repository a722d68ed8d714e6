#include "cli/output/number_text.h"

#include <algorithm>
#include <ctime>

#include "fmt/format.h"

namespace cotune::cli {
namespace {

// Two decimals under 10, one under 1000, none above.
std::string ThreeDigits(double number) {
  if (number < 9.995) return fmt::format("{:.2f}", number);
  if (number < 999.95) return fmt::format("{:.1f}", number);
  return fmt::format("{:.0f}", number);
}

}  // namespace

std::string MicrosecondsText(int64_t time_ns) {
  return ThreeDigits(static_cast<double>(time_ns) / 1e3);
}

std::string IntervalText(int64_t low_ns, int64_t high_ns) {
  return MicrosecondsText(low_ns) + "-" + MicrosecondsText(high_ns);
}

std::string BandwidthText(double gigabytes_per_second) {
  return gigabytes_per_second > 0 ? fmt::format("{:.2f}", gigabytes_per_second) : "-";
}

double AlgorithmBandwidth(const Problem& problem, int64_t time_ns) {
  if (time_ns <= 0) return 0;
  return AlgorithmBandwidthGBps(problem.bytes(), static_cast<double>(time_ns) / 1e9);
}

double BusBandwidth(const Problem& problem, int64_t time_ns) {
  return AlgorithmBandwidth(problem, time_ns) *
         BusBandwidthFactor(problem.cls.collective, problem.cls.world_size);
}

std::string FactorText(double factor) { return fmt::format("{:.2f}x", factor); }

std::string SpanText(int64_t span_ns) {
  const int64_t seconds = (std::max<int64_t>(0, span_ns) + 500'000'000) / 1'000'000'000;
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string AboutText(int64_t span_ns) {
  const int64_t seconds = (std::max<int64_t>(0, span_ns) + 500'000'000) / 1'000'000'000;
  if (seconds == 0) return "less than a second";
  if (seconds < 60) return fmt::format("about {} s", seconds);
  if (seconds < 3600) return fmt::format("about {} min {} s", seconds / 60, seconds % 60);
  return fmt::format("about {} h {} min", seconds / 3600, seconds / 60 % 60);
}

std::string TimeOfDayText(int64_t unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return fmt::format("{} s after 1970", unix_s);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min);
}

}  // namespace cotune::cli
