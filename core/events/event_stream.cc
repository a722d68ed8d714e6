#include "core/events/event_stream.h"

#include <algorithm>

namespace cotune {

void EventStream::OnEvent(const Event& event) { HandOut(event, &StageObserver::OnEvent); }

void EventStream::OnRefusedCells(const Event& warning) {
  HandOut(warning, &StageObserver::OnRefusedCells);
}

void EventStream::HandOut(const Event& event, void (StageObserver::*listen)(const Event&)) {
  if (listeners_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  Event stamped = event;
  if (stamped.time_ns == 0) stamped.time_ns = clock_.now_ns();
  for (StageObserver* listener : listeners_) (listener->*listen)(stamped);
}

void EventStream::OnPlan(const TunePlan& plan) {
  const std::lock_guard lock(mutex_);
  for (StageObserver* listener : listeners_) listener->OnPlan(plan);
}

void EventStream::OnCellStart(int32_t index, int32_t total, const Problem& problem) {
  const std::lock_guard lock(mutex_);
  for (StageObserver* listener : listeners_) listener->OnCellStart(index, total, problem);
}

void EventStream::OnCellDone(int32_t index, int32_t total, const CellResult& cell,
                             const Winner& winner) {
  const std::lock_guard lock(mutex_);
  for (StageObserver* listener : listeners_) listener->OnCellDone(index, total, cell, winner);
}

bool EventStream::StopRequested() {
  return std::any_of(listeners_.begin(), listeners_.end(),
                     [](StageObserver* listener) { return listener->StopRequested(); });
}

void EventStream::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

}  // namespace cotune
