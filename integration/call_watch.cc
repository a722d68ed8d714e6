#include "integration/call_watch.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/backend/backend.h"
#include "core/database/tuning_journal.h"
#include "fmt/format.h"

namespace cotune {

CallWatchdog::Options WatchOptions(const TuningSettings& settings) {
  const int64_t timeout_ns = settings.collective_autotune_timeout_ns;
  // Late returns of a loaded machine are not yet what needs the last resort.
  constexpr int64_t kStuckMinNs = 2'000'000'000;
  constexpr int64_t kCallLimitNs = 60'000'000'000;
  CallWatchdog::Options options;
  // A backend may look for the rank that is late until then; an abort would hide that rank.
  constexpr int64_t kHourNs = 3'600'000'000'000;
  constexpr int64_t kLatestEndNs = LatestEndNs(0, kHourNs) - kHourNs;
  options.abort_after_ns = std::max(timeout_ns / 4, kLatestEndNs);
  options.stuck_after_ns = std::max(timeout_ns / 4, kStuckMinNs);
  options.call_limit_ns = std::min(settings.warm_timeout_ns, kCallLimitNs);
  return options;
}

int64_t StuckReportNs(const TuningSettings& settings) {
  const CallWatchdog::Options options = WatchOptions(settings);
  return options.call_limit_ns + options.abort_after_ns + options.stuck_after_ns;
}

struct CallWatch::Report {
  explicit Report(Options given) : options(std::move(given)) {}
  void OnStuck(const StuckCall& call, Error error);

  const Options options;
  std::mutex mutex;
  std::string journal_path;  // under the mutex
};

void CallWatch::Report::OnStuck(const StuckCall& call, Error error) {
  {
    const std::lock_guard lock(mutex);
    const CallSubject& subject = call.blamed();
    const bool is_to_blame = !subject.choice.empty() && !call.was_interrupted;
    const bool has_blamed =
        is_to_blame && !journal_path.empty() &&
        AppendBlame(journal_path.c_str(), {subject.problem_class, subject.bytes, subject.choice,
                                           options.rank, call.function, "did not return"});
    if (has_blamed) error.next_step = "run again: the next tune leaves the choice out";
  }
  if (options.world_size > 1) {
    error.where = fmt::format("rank {}", options.rank);
    error.ranks = {options.rank};
  }
  if (options.on_stuck) {
    options.on_stuck(error);
  } else if (options.lines != nullptr) {
    EmitLine(*options.lines, Severity::kError, error.ToText());
  }
}

CallWatch::CallWatch(const Clock& clock, Options options)
    : report_(std::make_shared<Report>(std::move(options))) {
  CallWatchdog::Options watch = WatchOptions(report_->options.settings);
  watch.on_stuck = [report = report_](const StuckCall& call, const Error& error) {
    report->OnStuck(call, error);
  };
  if (report_->options.lines != nullptr) {
    watch.on_slow = [report = report_,
                     seconds = watch.slow_after_ns / 1'000'000'000](const StuckCall& call) {
      EmitLine(*report->options.lines, Severity::kWarning,
               fmt::format("{} of {} still runs after {} s on rank {}", call.function,
                           call.subject.text, seconds, report->options.rank));
    };
  }
  watchdog_ = std::make_unique<CallWatchdog>(clock, std::move(watch));
}

void CallWatch::set_journal_path(const std::string& path) {
  const std::lock_guard lock(report_->mutex);
  report_->journal_path = path;
}

}  // namespace cotune
