// The stream that hands each event to all listeners.
#ifndef COTUNE_CORE_EVENTS_EVENT_STREAM_H_
#define COTUNE_CORE_EVENTS_EVENT_STREAM_H_

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/events/stage_observer.h"

namespace cotune {

// Thread-safe. Listeners hear one event at a time, in the order of their list, and need no lock of
// their own; none of them may emit. A stream is a listener itself, so that the listeners of a job
// and those of one of its tunes need not know of each other.
class EventStream final : public StageObserver {
 public:
  // The clock and the listeners outlive the stream, or its end by Close().
  EventStream(const Clock& clock, std::vector<StageObserver*> listeners)
      : clock_(clock), listeners_(std::move(listeners)) {}

  // Stamps what nobody has stamped before.
  void OnEvent(const Event& event) override;
  void OnRefusedCells(const Event& warning) override;
  void OnPlan(const TunePlan& plan) override;
  void OnCellStart(int32_t index, int32_t total, const Problem& problem) override;
  void OnCellDone(int32_t index, int32_t total, const CellResult& cell,
                  const Winner& winner) override;
  // Whether any listener says so. It takes no lock: between calls of a choice, it waits for nobody.
  bool StopRequested() override;

  // From here on nobody hears anything, also of threads that were left behind in a call.
  void Close();

 private:
  void HandOut(const Event& event, void (StageObserver::*listen)(const Event&));

  const Clock& clock_;
  std::mutex mutex_;
  bool is_closed_ = false;
  const std::vector<StageObserver*> listeners_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_EVENTS_EVENT_STREAM_H_
