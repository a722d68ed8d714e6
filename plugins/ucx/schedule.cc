#include "plugins/ucx/schedule.h"

#include <algorithm>
#include <utility>

namespace cotune::ucx {
namespace {

constexpr uint64_t kCacheLineBytes = 64;

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Whole cache lines, and such that all segments are nearly equal.
uint64_t SegmentElements(const Problem& problem, const Shape& shape) {
  const uint64_t count = std::max<uint64_t>(problem.count, 1);
  if (shape.parameters.segment_bytes == 0) return count;
  const uint64_t width = ElementBytes(problem.type);
  const uint64_t wanted =
      shape.parameters.segment_bytes / width * static_cast<uint64_t>(shape.messages_per_segment);
  if (wanted >= count) return count;
  const uint64_t segments = (count - 1) / wanted + 1;
  return std::min(RoundUp((count - 1) / segments + 1, kCacheLineBytes / width), wanted);
}

}  // namespace

uint64_t PartBegin(const Problem& problem, int parts, uint64_t length, int part) {
  const uint64_t line = kCacheLineBytes / ElementBytes(problem.type);
  const uint64_t lines = (length + line - 1) / line;
  const uint64_t begin = lines * static_cast<uint64_t>(part) / static_cast<uint64_t>(parts) * line;
  return std::min(begin, length);
}

uint32_t Schedule::LargestStep() const {
  uint32_t largest = 0;
  for (const Step& step : steps) {
    largest = std::max(largest, step.message_end - step.message_begin);
  }
  return largest;
}

uint64_t Schedule::ScratchBytes() const {
  return scratch_bytes * std::min(static_cast<uint64_t>(window), Instances());
}

ScheduleBuilder::ScheduleBuilder(const Problem& problem, int rank, const Shape& shape) {
  schedule_.problem = problem;
  schedule_.rank = rank;
  schedule_.parts = shape.parts;
  schedule_.window = std::max(shape.parameters.posts, 1);
  schedule_.segment_elements = SegmentElements(problem, shape);
}

int ScheduleBuilder::AddRegionOf(uint64_t block_elements, int blocks) {
  const Problem& problem = schedule_.problem;
  const uint64_t width = Reduces(problem) ? PartialBytes(problem.type) : ElementBytes(problem.type);
  const uint64_t block_bytes = block_elements * width;
  schedule_.regions.push_back({schedule_.scratch_bytes, block_bytes});
  schedule_.scratch_bytes += RoundUp(block_bytes * static_cast<uint64_t>(blocks), kCacheLineBytes);
  return static_cast<int>(schedule_.regions.size()) - 1;
}

int ScheduleBuilder::AddRegion(int blocks) {
  return AddRegionOf(schedule_.segment_elements, blocks);
}

int ScheduleBuilder::AddRegionOfParts(int parts) {
  uint64_t largest = 0;
  for (int begin = 0; begin + parts <= schedule_.parts; ++begin) {
    const auto at = [&](int part) {
      return PartBegin(schedule_.problem, schedule_.parts, schedule_.segment_elements, part);
    };
    largest = std::max(largest, at(begin + parts) - at(begin));
  }
  // A last segment is shorter, and its lines may be divided in another way.
  const uint64_t line = kCacheLineBytes / ElementBytes(schedule_.problem.type);
  return AddRegionOf(std::min(largest + line, schedule_.segment_elements), 1);
}

void ScheduleBuilder::BeginLane() {
  const auto at = static_cast<uint32_t>(schedule_.steps.size());
  schedule_.lanes.push_back({at, at});
  const auto ranks = static_cast<size_t>(schedule_.problem.world_size);
  sent_.assign(ranks, 0);
  received_.assign(ranks, 0);
}

void ScheduleBuilder::BeginStep() {
  const auto messages = static_cast<uint32_t>(schedule_.messages.size());
  const auto work = static_cast<uint32_t>(schedule_.work.size());
  schedule_.steps.push_back({messages, messages, work, work});
  ++schedule_.lanes.back().step_end;
}

void ScheduleBuilder::Append(bool is_send, int peer, Place place, Span span) {
  uint16_t& order = (is_send ? sent_ : received_)[static_cast<size_t>(peer)];
  schedule_.messages.push_back({is_send, static_cast<uint8_t>(peer), order++, place, span});
  ++schedule_.steps.back().message_end;
}

LocalWork& ScheduleBuilder::AppendWork(const std::vector<Place>& from, Place to, Span span) {
  const auto begin = static_cast<uint32_t>(schedule_.sources.size());
  schedule_.sources.insert(schedule_.sources.end(), from.begin(), from.end());
  schedule_.work.push_back({false, false, begin, static_cast<uint32_t>(from.size()), to, span});
  ++schedule_.steps.back().work_end;
  return schedule_.work.back();
}

void ScheduleBuilder::Copy(Place from, Place to, Span span) { AppendWork({from}, to, span); }

void ScheduleBuilder::Reduce(const std::vector<Place>& from, Place to, Span span, bool finishes) {
  LocalWork& local = AppendWork(from, to, span);
  local.reduces = true;
  local.finishes = finishes;
}

Schedule ScheduleBuilder::Finish() { return std::move(schedule_); }

}  // namespace cotune::ucx
