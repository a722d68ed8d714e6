#include "integration/event_recorder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/clock.h"
#include "core/ranks/step_record.h"

namespace cotune {
namespace {

constexpr int64_t kOpen = -1;  // the extent of a span that has not ended

}  // namespace

RecorderLimits RecorderLimits::ForRanks(int world_size) {
  constexpr int kRanksWithAll = 8;
  const auto parts = static_cast<size_t>(std::max(world_size, kRanksWithAll));
  RecorderLimits limits;
  for (size_t* limit : {&limits.events, &limits.counters, &limits.text_bytes}) {
    *limit = *limit * kRanksWithAll / parts;
  }
  return limits;
}

EventRecorder::EventRecorder(RecorderLimits limits)
    : limits_(limits), tuning_thread_(std::this_thread::get_id()) {
  IndexOf("");
}

void EventRecorder::OnEvent(const Event& event) {
  if (is_taken_) return;
  switch (event.type) {
    case EventType::kBegin:
      Begin(event);
      break;
    case EventType::kEnd:
      End(event.time_ns);
      break;
    case EventType::kMark:
    case EventType::kCounter: {
      const auto lane = lanes_.find(std::this_thread::get_id());
      Keep(event, lane == lanes_.end() ? 0 : lane->second.number);
      break;
    }
    case EventType::kLine:
      break;
  }
}

void EventRecorder::Begin(const Event& event) {
  const auto thread = std::this_thread::get_id();
  auto lane = lanes_.find(thread);
  if (lane == lanes_.end()) {
    const uint32_t number = thread == tuning_thread_ ? 0 : FirstFreeLane();
    lane = lanes_.emplace(thread, Lane{number}).first;
  }
  const size_t kept = Keep(event, lane->second.number);
  if (kept != kDropped) trace_.entries[kept].value = kOpen;
  lane->second.open_spans.push_back(kept);
}

void EventRecorder::End(int64_t time_ns) {
  const auto lane = lanes_.find(std::this_thread::get_id());
  if (lane == lanes_.end()) return;  // its begin was before anybody listened
  const size_t kept = lane->second.open_spans.back();
  lane->second.open_spans.pop_back();
  if (lane->second.open_spans.empty()) lanes_.erase(lane);
  if (kept == kDropped) return;
  TraceOfRank::Entry& span = trace_.entries[kept];
  span.value = time_ns - span.time_ns;
}

size_t EventRecorder::Keep(const Event& event, uint32_t lane) {
  const bool is_counter = event.type == EventType::kCounter;
  if (trace_.entries.size() >= limits_.events || text_bytes_ >= limits_.text_bytes ||
      (is_counter && counters_ >= limits_.counters)) {
    ++trace_.dropped;
    return kDropped;
  }
  if (is_counter) ++counters_;
  trace_.entries.push_back({.type = event.type,
                            .kind = event.kind,
                            .lane = lane,
                            .name = IndexOf(event.name),
                            .node = IndexOf(event.node),
                            .choice = IndexOf(event.choice),
                            .time_ns = event.time_ns,
                            .value = event.value});
  return trace_.entries.size() - 1;
}

uint32_t EventRecorder::IndexOf(std::string_view text) {
  const auto found = texts_.find(text);
  if (found != texts_.end()) return found->second;
  const auto index = static_cast<uint32_t>(trace_.texts.size());
  texts_.emplace(text, index);
  trace_.texts.emplace_back(text);
  text_bytes_ += text.size();
  return index;
}

uint32_t EventRecorder::FirstFreeLane() const {
  for (uint32_t number = 1;; ++number) {
    const bool is_taken = std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& each) {
      return each.second.number == number;
    });
    if (!is_taken) return number;
  }
}

TraceOfRank EventRecorder::Take() {
  is_taken_ = true;
  TraceOfRank taken = std::exchange(trace_, {});
  texts_.clear();
  lanes_.clear();
  std::erase_if(taken.entries, [](const TraceOfRank::Entry& entry) {
    return entry.type == EventType::kBegin && entry.value == kOpen;
  });
  return taken;
}

Result<std::vector<TraceOfRank>> GatherTraces(Job& job, TraceOfRank own) {
  const int64_t deadline_ns = job.clock().now_ns() + job.settings().warm_timeout_ns;
  // Times travel from the job's begin on: processes may have clocks that do not agree.
  COTUNE_TRY(const StepResult met, job.exchange().Step("begin of trace", "", 0, deadline_ns));
  for (TraceOfRank::Entry& entry : own.entries) entry.time_ns -= met.job_begin_ns;
  COTUNE_TRY(auto all, ExchangeRecords(job.exchange(), "trace",
                                       StepRecord<TraceOfRank>{std::nullopt, std::move(own)}, 0,
                                       deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::vector<TraceOfRank> traces;
  for (auto& record : all.records) traces.push_back(std::move(record.message));
  return traces;
}

}  // namespace cotune
