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
// may share them. A cell timing owns it, for as long as it measures; `state` outlives it. The
// thread that tunes calls it.
class ProcessorWatch {
 public:
  explicit ProcessorWatch(TuneState& state) : state_(state) {}

  // A measurement begins. If it is shorter than the times can show, those before it are observed
  // with it.
  void Begin() { begins_.push_back(TimesNow()); }
  // A measurement begins, and those before it no longer count.
  void Restart() { begins_ = {TimesNow()}; }
  // Returns the share of the processors that other programs have used since the measurement began;
  // nothing if it is not known. Collective, and equal on all ranks; called after a begin. now_ns
  // becomes the time of the job at its end. kInterrupted if the user asked a rank to stop.
  Result<std::optional<double>> ShareOfOtherPrograms(std::string_view label, int64_t& now_ns);

 private:
  // Returns how the processors were used since the latest of `begins_` for which they have been
  // observed for long enough. If there is none, waits until they have been observed for long
  // enough since the first: otherwise a tune of one short cell would not see any load. The times
  // are 0 or too short if this system publishes none that advance. kInterrupted if the user asked
  // to stop.
  Result<ProcessorUse> ObserveProcessors();
  ProcessorTimes TimesNow() const;

  TuneState& state_;
  // At the beginning of this measurement and of those before it, as far back as ObserveProcessors
  // needs them.
  std::deque<ProcessorTimes> begins_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_PROCESSOR_WATCH_H_
