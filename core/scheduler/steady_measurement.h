// Measures a cell until its times are steady, twice at most.
#ifndef COTUNE_CORE_SCHEDULER_STEADY_MEASUREMENT_H_
#define COTUNE_CORE_SCHEDULER_STEADY_MEASUREMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/scheduler/heat_runner.h"
#include "core/scheduler/processor_watch.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"
#include "core/scheduler/two_heats.h"

namespace cotune {

// All its arguments outlive it. Collective: every rank measures the same cells in the same order.
class SteadyMeasurement {
 public:
  SteadyMeasurement(TuneState& state, HeatRunner& heats, TwoHeats& two_heats,
                    ProcessorWatch& processors)
      : state_(state), heats_(heats), two_heats_(two_heats), processors_(processors) {}

  // Measures the cell, a second time if its times are unsteady and the budget allows it, and marks
  // it if they are unsteady again. budget_ns 0: there is none.
  Result<DecidedCell> Measure(TuneCell& cell, int64_t budget_ns);

 private:
  // The race of a cell, with its second heat if it has one. Marks the cell as unsteady if the
  // budget ends it with short samples, which do not decide. budget_ns: as in Measure.
  Result<DecidedCell> MeasureOnce(TuneCell& cell, int64_t budget_ns);
  Result<DecidedCell> MeasureAgain(TuneCell& cell, DecidedCell first, int64_t budget_ns);
  // Returns why the times of the cell that was just measured are unsteady; "" if they are not.
  // `share_before`: what other programs used while its first heat was raced. Collective, and equal
  // on all ranks.
  Result<std::string> WhyUnsteady(const DecidedCell& decided, std::string_view label,
                                  std::optional<double> share_before);
  void WarnOfUnsteadyCell(const CellPlace& place, const std::string& reason);

  TuneState& state_;
  HeatRunner& heats_;
  TwoHeats& two_heats_;
  ProcessorWatch& processors_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_STEADY_MEASUREMENT_H_
