// The steps that the ranks take together while they measure one cell.
#ifndef COTUNE_CORE_BENCHMARK_CELL_STEPS_H_
#define COTUNE_CORE_BENCHMARK_CELL_STEPS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/benchmark/benchmark_parts.h"
#include "core/ranks/step_record.h"

namespace cotune {

// Numbers the steps, so that each has a name of its own, and keeps the time of the job.
class CellSteps {
 public:
  // `label` starts the names of the steps.
  CellSteps(const BenchmarkParts& parts, std::string label)
      : parts_(parts), label_(std::move(label)) {}

  // Collective. start_delay_ns as in ExchangeRecords. kInterrupted, on all ranks, if the user has
  // asked one of them to stop.
  template <typename Message>
  Result<ExchangedRecords<Message>> Exchange(std::string_view step,
                                             const StepRecord<Message>& record,
                                             int64_t start_delay_ns = 0) {
    // A rank reports a stop in a step, when its own call is over, and never by staying away from
    // a call that the others wait in.
    const bool stops = !record.failure && parts_.observer.StopRequested();
    Result<ExchangedRecords<Message>> all =
        ExchangeRecords(parts_.exchange, NextName(step),
                        stops ? StepRecord<Message>::FromStatus(TuneInterrupted()) : record,
                        start_delay_ns, DeadlineNs());
    if (!all) return all;
    elapsed_ns_ = all->elapsed_ns;
    job_begin_ns_ = all->job_begin_ns;
    // A call that was given up, or that failed on another rank, is the caller's to clean up first.
    const std::optional<StepFailure> wish = FailureOf(Status(TuneInterrupted()));
    const bool some_stop = std::any_of(all->records.begin(), all->records.end(),
                                       [&](const auto& rank) { return rank.failure == wish; });
    const bool only_stops =
        std::all_of(all->records.begin(), all->records.end(),
                    [&](const auto& rank) { return !rank.failure || rank.failure == wish; });
    if (some_stop && only_stops) return TuneInterrupted();
    return all;
  }

  // From the job's begin to the last step; equal on all ranks.
  int64_t elapsed_ns() const { return elapsed_ns_; }
  // On this process's clock, as it was known at the last step.
  int64_t job_begin_ns() const { return job_begin_ns_; }
  const std::string& label() const { return label_; }

 private:
  std::string NextName(std::string_view step);
  int64_t DeadlineNs() const;

  const BenchmarkParts& parts_;
  const std::string label_;
  uint32_t step_count_ = 0;
  int64_t elapsed_ns_ = 0;
  int64_t job_begin_ns_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CELL_STEPS_H_
