// The watch over a job's calls into plugins: how long one may take, and what happens to one that
// never returns.
#ifndef COTUNE_INTEGRATION_CALL_WATCH_H_
#define COTUNE_INTEGRATION_CALL_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/backend/call_watchdog.h"
#include "core/base/clock.h"
#include "core/base/event_sink.h"
#include "core/base/status.h"
#include "core/problem/tuning_settings.h"

namespace cotune {

// The deadlines of a watchdog under these settings.
CallWatchdog::Options WatchOptions(const TuningSettings& settings);
// The longest time from the beginning of a call without a deadline of its own until it is reported
// as one that never returns.
int64_t StuckReportNs(const TuningSettings& settings);

// The watchdog of one rank. It tells the user of calls that take long. A choice whose call never
// returns it notes in the tuning journal, so that the next tune leaves the choice out, and reports
// the call. Shared by a job and the jobs that are split from it. Any thread.
class CallWatch {
 public:
  struct Options {
    TuningSettings settings;
    int rank = 0;
    int world_size = 1;
    // Called once, on the watchdog's thread; empty: a line says it.
    std::function<void(const Error& error)> on_stuck;
    EventSink* lines = nullptr;  // outlives the watch; nullptr: nobody hears of it
  };
  // `clock` outlives the watch.
  CallWatch(const Clock& clock, Options options);

  CallWatchdog& watchdog() { return *watchdog_; }
  const CallWatchdog& watchdog() const { return *watchdog_; }
  // The file in which a stuck choice is noted; "": nowhere.
  void set_journal_path(const std::string& path);

 private:
  struct Report;
  std::shared_ptr<Report> report_;  // the handler on the watchdog's thread uses it too
  std::unique_ptr<CallWatchdog> watchdog_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_CALL_WATCH_H_
