// How fast the ranks' devices ran while a cell was measured, where they say it.
#ifndef COTUNE_CORE_BENCHMARK_CLOCK_REPORT_H_
#define COTUNE_CORE_BENCHMARK_CLOCK_REPORT_H_

#include <cstdint>
#include <string>

#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/preparation.h"

namespace cotune {

struct CellClocks {
  int32_t sm_clock_mhz = 0;        // of the slowest device after the last sample; 0: not known
  std::string throttle_reasons{};  // of all devices, before and after; ascending, with commas
};

// Collective.
class ClockReport {
 public:
  ClockReport(const BenchmarkParts& parts, CellSteps& steps) : parts_(parts), steps_(steps) {}

  // Behind the last sample. No step where no rank knows its clocks.
  Result<CellClocks> Run(const PreparedCell& prepared);

 private:
  const BenchmarkParts& parts_;
  CellSteps& steps_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CLOCK_REPORT_H_
