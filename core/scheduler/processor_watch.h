// Observes the processors while cells are measured.
#ifndef COTUNE_CORE_SCHEDULER_PROCESSOR_WATCH_H_
#define COTUNE_CORE_SCHEDULER_PROCESSOR_WATCH_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "core/base/processor_times.h"
#include "core/base/status.h"
#include "core/scheduler/foreign_load.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

// Reads the times of this rank's processors and compares them with those of the other ranks, which
// may share them. `state` outlives it. The thread that tunes calls it.
class ProcessorWatch {
 public:
  explicit ProcessorWatch(TuneState& state) : state_(state) {}

  // Returns true if cells are judged by the steadiness of their times; equal on all ranks. If it is
  // false, Begin reads nothing, and ShareOfOtherPrograms is not called.
  bool JudgesCells() const {
    return !state_.settings.keep_unsteady && state_.parts.processor_times != nullptr;
  }
  // A measurement begins, or what comes before it. If it is shorter than the times can show, what
  // came before is observed with it. Ranks that share processors call this at the same moment, or
  // else the work of the first of them looks like another program to the others.
  void Begin() {
    if (JudgesCells()) begins_.push_back(TimesNow());
  }
  // A measurement begins, and what came before no longer counts.
  void Restart() {
    begins_.clear();
    Begin();
  }
  // Measuring begins. If what came before took so long that load during the first cell would hardly
  // show in it, it no longer counts.
  void BeginMeasuring();
  // Returns the share of the processors that other programs have used since the measurement began;
  // nothing if it is not known. Collective, and equal on all ranks; called after a begin. now_ns
  // becomes the time of the job at its end. kInterrupted if the user asked a rank to stop.
  Result<std::optional<double>> ShareOfOtherPrograms(std::string_view label, int64_t& now_ns);

 private:
  // Returns how the processors were used since the latest of `begins_` for which they have been
  // observed for long enough. If there is none, waits until they have been observed for long
  // enough since the first: otherwise a tune of one short cell would not see any load. All but
  // `usable` is 0 if this system publishes no times or does not count them. kInterrupted if the
  // user asked to stop.
  Result<ProcessorUse> ObserveProcessors();
  // Nothing if the system publishes no times.
  std::optional<ProcessorTimes> TimesNow() const { return state_.parts.processor_times(); }

  TuneState& state_;
  // At the beginning of this measurement and of those before it, as far back as ObserveProcessors
  // needs them.
  std::deque<std::optional<ProcessorTimes>> begins_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_PROCESSOR_WATCH_H_
