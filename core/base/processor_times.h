// CPU times, by which a tune notices that other programs use the processors of its ranks.
#ifndef COTUNE_CORE_BASE_PROCESSOR_TIMES_H_
#define COTUNE_CORE_BASE_PROCESSOR_TIMES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cotune {

// Times since some moment in the past; only differences mean something.
struct ProcessorTimes {
  int64_t own_ns = 0;   // CPU time of this process, of all its threads
  int64_t idle_ns = 0;  // time that the processors were idle, of all of them together; the system
                        // counts that of each in steps of 10 ms as a rule
  // Time that the system has counted as idle or as used, in the same steps. It advances as the
  // clock does, except on systems that do not count.
  int64_t counted_ns = 0;
  int64_t now_ns = 0;  // time of a monotonic clock at which the others were read
};

// The times of this process and of the processors that it may use. Any thread. Nothing if the
// system does not publish them.
std::optional<ProcessorTimes> ReadProcessorTimes();

// The same out of the text of /proc/stat for these processors. Pure. Nothing if a processor is
// missing there. own_ns and now_ns stay 0.
std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view proc_stat,
                                                  const std::vector<size_t>& processors,
                                                  int64_t ticks_per_second);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_PROCESSOR_TIMES_H_
