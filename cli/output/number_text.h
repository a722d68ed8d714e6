// Numbers as they are printed: microseconds, GB/s, spans of time.
#ifndef COTUNE_CLI_OUTPUT_NUMBER_TEXT_H_
#define COTUNE_CLI_OUTPUT_NUMBER_TEXT_H_

#include <cstdint>
#include <string>

#include "core/problem/problem.h"

namespace cotune::cli {

// "5.21", "41.2", "1234": three digits or more that count.
std::string MicrosecondsText(int64_t time_ns);
// "5.10-5.40", in microseconds.
std::string IntervalText(int64_t low_ns, int64_t high_ns);
// "9.54", in GB/s (10^9 bytes); "-" when there is no time.
std::string BandwidthText(double gigabytes_per_second);
// Formulas of nccl-tests; 0 when there is no time.
double AlgorithmBandwidth(const Problem& problem, int64_t time_ns);
double BusBandwidth(const Problem& problem, int64_t time_ns);
// "1.32x".
std::string FactorText(double factor);
// "0:12", "3:40", "1:02:03".
std::string SpanText(int64_t span_ns);
// "about 12 s", "about 3 min 40 s".
std::string AboutText(int64_t span_ns);
// "2026-11-21 05:20 UTC".
std::string TimeOfDayText(int64_t unix_s);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_NUMBER_TEXT_H_
