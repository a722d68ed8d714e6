#include "core/scheduler/processor_watch.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/usable_processors.h"
#include "core/benchmark/cell_steps.h"
#include "core/ranks/step_record.h"

namespace cotune {
namespace {

// A rank that waits looks so often whether the user has asked it to stop.
constexpr std::chrono::nanoseconds kPauseMax = std::chrono::milliseconds{10};

}  // namespace

void ProcessorWatch::BeginMeasuring() {
  if (!JudgesCells() || begins_.empty() || !begins_.front()) return;
  const std::optional<ProcessorTimes> now = TimesNow();
  if (now && now->now_ns - begins_.front()->now_ns > kObservedMinNs) begins_.clear();
}

Result<ProcessorUse> ProcessorWatch::ObserveProcessors() {
  ProcessorUse unknown{.usable = UsableProcessors()};
  std::optional<ProcessorTimes> now = TimesNow();
  while (begins_.size() > 1 && !begins_.front()) begins_.pop_front();  // that reading has failed
  if (!now || !begins_.front()) return unknown;
  const auto observed_ns = [&](const std::optional<ProcessorTimes>& begin) {
    return begin ? now->now_ns - begin->now_ns : 0;
  };
  while (state_.has_advancing_times && observed_ns(begins_.front()) < kObservedMinNs) {
    if (state_.parts.observer.StopRequested()) return TuneInterrupted();
    const std::chrono::nanoseconds left{kObservedMinNs - observed_ns(begins_.front())};
    std::this_thread::sleep_for(std::min(left, kPauseMax));
    now = TimesNow();
    if (!now) return unknown;
  }
  while (begins_.size() > 1 && observed_ns(begins_[1]) >= kObservedMinNs) begins_.pop_front();
  ProcessorUse use = UseBetween(unknown.usable, *begins_.front(), *now);
  if (use.capacity_ns == 0) state_.has_advancing_times = false;
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
