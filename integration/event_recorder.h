// The events of a tune on one rank, kept for a trace.
#ifndef COTUNE_INTEGRATION_EVENT_RECORDER_H_
#define COTUNE_INTEGRATION_EVENT_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/events/stage_observer.h"
#include "core/ranks/step_messages.h"
#include "integration/job.h"

namespace cotune {

// How much a rank keeps at most: a few MiB, also when it is sent.
struct RecorderLimits {
  // Every rank receives what all of them have kept: with more than 8 ranks each keeps less.
  static RecorderLimits ForRanks(int world_size);

  size_t events = 100'000;
  size_t counters = 50'000;  // of these, so that many samples leave room for the spans after them
  size_t text_bytes = 4 << 20;
};

// Hears one event at a time, each with its time, on the thread that emits it. What is beyond the
// limits is counted; a span is kept whole or not at all.
class EventRecorder final : public StageObserver {
 public:
  // Made on the thread that tunes, whose lane is 0. Any other thread has the first free lane for as
  // long as it has an open span.
  explicit EventRecorder(RecorderLimits limits = {});

  void OnEvent(const Event& event) override;
  // All that was kept; spans that are still open are left out. Nothing is kept afterwards.
  TraceOfRank Take();

 private:
  static constexpr size_t kDropped = SIZE_MAX;
  struct Lane {
    uint32_t number = 0;
    std::vector<size_t> open_spans{};  // by where they are kept, or kDropped
  };

  void Begin(const Event& event);
  void End(int64_t time_ns);
  // Where the event is kept, or kDropped.
  size_t Keep(const Event& event, uint32_t lane);
  uint32_t IndexOf(std::string_view text);
  uint32_t FirstFreeLane() const;

  const RecorderLimits limits_;
  bool is_taken_ = false;
  const std::thread::id tuning_thread_;
  TraceOfRank trace_;
  std::map<std::string, uint32_t, std::less<>> texts_;
  size_t text_bytes_ = 0;
  size_t counters_ = 0;
  std::map<std::thread::id, Lane> lanes_;  // of threads with an open span
};

// The traces of all ranks, on every rank. Collective, after a tune that every rank has recorded.
Result<std::vector<TraceOfRank>> GatherTraces(Job& job, TraceOfRank own);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_EVENT_RECORDER_H_
