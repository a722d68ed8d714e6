#include "core/scheduler/processor_watch.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/usable_processors.h"
#include "core/benchmark/cell_steps.h"
#include "core/ranks/step_record.h"

namespace cotune {
namespace {

// The times of processors move in steps of this length as a rule.
constexpr std::chrono::milliseconds kObservationPause{10};
// Times that show too little after 0.3 s, longer than any number of processors needs, do not
// advance: some sandboxes publish constant ones.
constexpr int kObservationPausesMax = 30;

}  // namespace

ProcessorTimes ProcessorWatch::TimesNow() const {
  const auto& read = state_.parts.processor_times;
  return read == nullptr ? ProcessorTimes{} : read().value_or(ProcessorTimes{});
}

Result<ProcessorUse> ProcessorWatch::ObserveProcessors() {
  ProcessorUse use{.usable = UsableProcessors()};
  ProcessorTimes now = TimesNow();
  const auto is_long_ago = [&](const ProcessorTimes& times) {
    return IsObserved(use.usable, now.capacity_ns - times.capacity_ns);
  };
  for (int pauses = 0; state_.has_advancing_times && !is_long_ago(begins_.front()); ++pauses) {
    if (state_.parts.observer.StopRequested()) return TuneInterrupted();
    if (pauses == kObservationPausesMax) {
      state_.has_advancing_times = false;
      break;
    }
    std::this_thread::sleep_for(kObservationPause);
    now = TimesNow();
  }
  while (begins_.size() > 1 && is_long_ago(begins_[1])) begins_.pop_front();
  const ProcessorTimes& before = begins_.front();
  use.own_ns = now.own_ns - before.own_ns;
  use.busy_ns = now.busy_ns - before.busy_ns;
  use.capacity_ns = now.capacity_ns - before.capacity_ns;
  return use;
}

Result<std::optional<double>> ProcessorWatch::ShareOfOtherPrograms(std::string_view label,
                                                                   int64_t& now_ns) {
  Result<ProcessorUse> use = ObserveProcessors();
  auto record = StepRecord<ProcessorUse>::FromStatus(use ? Status{} : Propagate(use));
  if (use) record.message = std::move(*use);
  COTUNE_TRY(const auto all, ExchangeRecords(state_.parts.exchange, std::string(label), record, 0,
                                             DeadlineAfter(state_.parts.clock.now_ns(),
                                                           state_.settings.warm_timeout_ns)));
  now_ns = all.elapsed_ns;
  if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::vector<ProcessorUse> ranks;
  for (const auto& each : all.records) ranks.push_back(each.message);
  return ForeignShare(ranks);
}

}  // namespace cotune
