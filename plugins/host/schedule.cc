#include "plugins/host/schedule.h"

#include <algorithm>
#include <utility>

namespace cotune::host {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t UnitElements(const Problem& problem, const SlotShape& shape) {
  const uint64_t row = shape.size.unit_elements;
  return row != 0 ? row : kCacheLineBytes / ElementBytes(problem.type);
}

}  // namespace

uint64_t Schedule::PartBegin(uint64_t length, int part) const {
  if (parts == 1) return part == 0 ? 0 : length;
  const auto count = static_cast<uint64_t>(parts);
  const uint64_t share = RoundUp((chunk_elements + count - 1) / count, unit_elements);
  return std::min(length, share * static_cast<uint64_t>(part));
}

bool Schedule::FitsTogether(const Schedule& other) const {
  const uint64_t chunks = Chunks();
  if (chunks != other.Chunks()) return false;
  if (chunks > 1 && chunk_elements != other.chunk_elements) return false;
  if (regions > 1 && region_bytes != other.region_bytes) return false;
  // The first chunk is as long as all but the last one.
  for (const uint64_t chunk : {uint64_t{0}, chunks - 1}) {
    for (int part = 0; chunks > 0 && part < parts; ++part) {
      const uint64_t length = ChunkLength(chunk);
      if (PartBegin(length, part) != other.PartBegin(length, part)) return false;
    }
  }
  return true;
}

bool Schedule::IsActive(const Op& op, uint64_t iteration) const {
  if (op.when == When::kFirst && iteration != 0) return false;
  if (op.when == When::kLast && iteration + 1 != Iterations()) return false;
  if (iteration >= Chunks() + op.lag) return false;
  return iteration >= op.lag || (op.kind != OpKind::kCopy && op.kind != OpKind::kReduce);
}

uint64_t ChunkElements(const Problem& problem, const SlotShape& shape) {
  const uint64_t unit = UnitElements(problem, shape);
  const auto regions = static_cast<uint64_t>(std::max(shape.regions, 1));
  const uint64_t width = shape.partial ? PartialBytes(problem.type) : ElementBytes(problem.type);
  const uint64_t wanted = shape.size.chunk_bytes / regions / ElementBytes(problem.type);
  // A region takes whole cache lines.
  const uint64_t region_bytes =
      shape.size.slot_bytes / 2 / regions / kCacheLineBytes * kCacheLineBytes;
  const uint64_t capacity = region_bytes / width;
  const uint64_t fitting = shape.regions == 0 ? wanted : std::min(wanted, capacity);
  const uint64_t largest = std::max(unit, fitting / unit * unit);
  if (problem.count == 0) return largest;
  // As many chunks as that takes, but of equal size: a short last one would leave ranks idle.
  const uint64_t chunks = (problem.count - 1) / largest + 1;
  return std::min(largest, RoundUp((problem.count + chunks - 1) / chunks, unit));
}

ScheduleBuilder::ScheduleBuilder(const Problem& problem, int rank, const SlotShape& shape) {
  schedule_.problem = problem;
  schedule_.rank = rank;
  schedule_.parts = shape.parts;
  schedule_.regions = shape.regions;
  schedule_.reads_peers = shape.reads_peers;
  schedule_.chunk_elements = ChunkElements(problem, shape);
  schedule_.unit_elements = UnitElements(problem, shape);
  schedule_.slot_element_bytes =
      shape.partial ? PartialBytes(problem.type) : ElementBytes(problem.type);
  schedule_.region_bytes =
      RoundUp(schedule_.chunk_elements * schedule_.slot_element_bytes, kCacheLineBytes);
  schedule_.lines_per_region = LinesOf(problem.count * ElementBytes(problem.type));
  part_end_ = static_cast<uint16_t>(shape.parts);
}

void ScheduleBuilder::SetParts(int begin, int end) {
  part_begin_ = U16(begin);
  part_end_ = U16(end);
}

Op& ScheduleBuilder::Append(OpKind kind) {
  Op op;
  op.kind = kind;
  op.lag = lag_;
  op.when = when_;
  op.part_begin = part_begin_;
  op.part_end = part_end_;
  schedule_.max_lag = std::max(schedule_.max_lag, static_cast<int>(lag_));
  schedule_.ops.push_back(op);
  return schedule_.ops.back();
}

void ScheduleBuilder::Copy(Place source, Place destination) {
  if (part_begin_ == part_end_) return;
  Op& op = Append(OpKind::kCopy);
  op.source_begin = static_cast<uint32_t>(schedule_.sources.size());
  op.source_count = 1;
  op.destination = destination;
  schedule_.sources.push_back(source);
}

void ScheduleBuilder::Copy(Place source, Place destination, Place second_destination) {
  if (part_begin_ == part_end_) return;
  Copy(source, destination);
  schedule_.ops.back().has_second_destination = true;
  schedule_.ops.back().second_destination = second_destination;
}

void ScheduleBuilder::PutLines(Place source, Place lines) {
  Copy(source, lines);
  schedule_.ops.back().kind = OpKind::kPutLines;
}

void ScheduleBuilder::TakeLines(Place lines, Place destination) {
  Copy(lines, destination);
  schedule_.ops.back().kind = OpKind::kTakeLines;
}

void ScheduleBuilder::Reduce(const std::vector<Place>& sources, Place destination, bool finish) {
  Op& op = Append(OpKind::kReduce);
  op.source_begin = static_cast<uint32_t>(schedule_.sources.size());
  op.source_count = static_cast<uint32_t>(sources.size());
  op.destination = destination;
  op.finish = finish;
  schedule_.sources.insert(schedule_.sources.end(), sources.begin(), sources.end());
}

void ScheduleBuilder::Reduce(const std::vector<Place>& sources, Place destination,
                             Place second_destination, bool finish) {
  Reduce(sources, destination, finish);
  schedule_.ops.back().has_second_destination = true;
  schedule_.ops.back().second_destination = second_destination;
}

void ScheduleBuilder::Signal(int step) {
  Append(OpKind::kSignal).step = static_cast<uint8_t>(step);
  last_step_ = step;
}

void ScheduleBuilder::WaitSignal(int peer, int step) {
  Op& op = Append(OpKind::kWaitSignal);
  op.peer = static_cast<uint8_t>(peer);
  op.step = static_cast<uint8_t>(step);
}

void ScheduleBuilder::Barrier() {
  if (schedule_.problem.world_size <= kMaxRanksMeetingBySignals) {
    Signal(last_step_ + 1);
    Append(OpKind::kWaitAllSignals).step = static_cast<uint8_t>(last_step_);
    return;
  }
  Append(OpKind::kArrive);
  Append(OpKind::kWaitArrived);
}

void ScheduleBuilder::WaitSlotFree() { Append(OpKind::kWaitSlotFree); }

Schedule ScheduleBuilder::Finish() { return std::move(schedule_); }

}  // namespace cotune::host
