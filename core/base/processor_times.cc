#include "core/base/processor_times.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "core/base/usable_processors.h"

namespace cotune {
namespace {

// The columns of a line "cpu3 ..." with the use of the time; guest time, which follows, is
// part of user time.
enum Column : size_t { kUser, kNice, kSystem, kIdle, kIoWait, kIrq, kSoftIrq, kSteal, kColumns };

}  // namespace

std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view proc_stat,
                                                  const std::vector<size_t>& processors,
                                                  int64_t ticks_per_second) {
  if (processors.empty() || ticks_per_second <= 0) return std::nullopt;
  const int64_t tick_ns = 1'000'000'000 / ticks_per_second;
  ProcessorTimes times;
  size_t found = 0;
  std::istringstream lines{std::string(proc_stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || !name.starts_with("cpu")) continue;  // the first line is the sum of all
    std::istringstream number(name.substr(3));
    size_t processor = 0;
    if (!(number >> processor)) continue;
    if (std::find(processors.begin(), processors.end(), processor) == processors.end()) continue;
    std::array<int64_t, kColumns> ticks{};
    for (int64_t& each : ticks) words >> each;
    if (!words) return std::nullopt;
    for (const int64_t each : ticks) times.counted_ns += each * tick_ns;
    times.idle_ns += (ticks[kIdle] + ticks[kIoWait]) * tick_ns;
    ++found;
  }
  if (found != processors.size()) return std::nullopt;
  return times;
}

std::optional<ProcessorTimes> ReadProcessorTimes() {
  std::ifstream file("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::optional<ProcessorTimes> times =
      ParseProcessorTimes(text, ProcessorsIn(UsableProcessors()), sysconf(_SC_CLK_TCK));
  timespec own{};
  if (!times || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) return std::nullopt;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  times->now_ns = std::chrono::nanoseconds(now).count();
  times->own_ns = static_cast<int64_t>(own.tv_sec) * 1'000'000'000 + own.tv_nsec;
  return times;
}

}  // namespace cotune
