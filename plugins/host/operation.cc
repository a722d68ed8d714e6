#include "plugins/host/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::host {
namespace {

// An operation that waits for nobody may go on for this time after its deadline. That is well
// before the end of the time that the ABI gives it.
constexpr int64_t kBusyNs = COTUNE_LAST_TURN_NS / 2;

// Bytes that the operations of a region work on at a time. They stay in a first-level cache between
// the collective and them, together with their other operands.
constexpr uint64_t kPieceBytes = 16 << 10;
// The same if a piece comes by a system call.
constexpr uint64_t kPeerPieceBytes = 256 << 10;

// Rounded up, so that the next memory begins on a cache line, too.
constexpr uint64_t WholeLines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

void CopyBytes(std::byte* destination, const std::byte* source, uint64_t bytes) {
  if (destination == source) return;  // in place
  std::memcpy(destination, source, bytes);
}

}  // namespace

Operation::Operation(Group& group, Schedule schedule, const sdk::CallRecord& call,
                     FusedOperations* fused)
    : group_(group),
      schedule_(std::move(schedule)),
      call_(call),
      fused_(fused),
      computes_operand_(fused != nullptr && fused->has_before()),
      uses_value_(fused != nullptr && fused->has_after()) {
  if (Reduces(schedule_.problem)) {
    kernel_ = sdk::FindReduceKernel(schedule_.problem.type, schedule_.problem.reduction);
  }
  uint64_t parts = 0;
  for (const Op& op : schedule_.ops) {
    if (op.destination.space == Space::kStaging) {
      parts = std::max<uint64_t>(parts, op.destination.block + 1u);
    }
  }
  const uint64_t staging_bytes = WholeLines(parts * schedule_.region_bytes);
  uint64_t piece_bytes = 0;
  if (fused_ != nullptr) {
    const uint64_t element_bytes = ElementBytes(schedule_.problem.type);
    const uint64_t wanted = schedule_.reads_peers ? kPeerPieceBytes : kPieceBytes;
    const uint64_t unit = schedule_.unit_elements;
    piece_elements_ = std::clamp(wanted / element_bytes / unit * unit, unit,
                                 std::max(unit, schedule_.chunk_elements));
    piece_bytes = WholeLines(piece_elements_ * element_bytes);
  }
  scratch_ = group.scratch().Take(staging_bytes + 2 * piece_bytes);
  staging_ = scratch_.get();
  operand_piece_ = staging_ + staging_bytes;
  value_piece_ = operand_piece_ + piece_bytes;
}

void Operation::Start(const void* send, void* receive, int64_t deadline_ns) {
  send_ = static_cast<const std::byte*>(send);
  receive_ = static_cast<std::byte*>(receive);
  deadline_ns_ = deadline_ns;
  iteration_ = 0;
  next_op_ = 0;
  if (schedule_.reads_peers) group_.PublishSendBuffer(send);
}

Advance Operation::Run(int64_t until_ns) {
  const uint64_t iterations = schedule_.Iterations();
  bool first = true;
  while (iteration_ < iterations) {
    // A long operation gives way even when nobody keeps it waiting.
    if (!first && next_op_ == 0 && until_ns > 0) {
      const int64_t now_ns = group_.NowNs();
      if (now_ns - kBusyNs >= deadline_ns_) {
        group_.DeclareOwnLateness();
        return Advance::kFailed;
      }
      if (now_ns >= until_ns) return Advance::kInProgress;
    }
    first = false;
    for (; next_op_ < schedule_.ops.size(); ++next_op_) {
      const Op& op = schedule_.ops[next_op_];
      if (!schedule_.IsActive(op, iteration_)) continue;
      const WaitOutcome outcome = Execute(op, until_ns);
      if (outcome == WaitOutcome::kNotYet) return Advance::kInProgress;
      if (outcome == WaitOutcome::kFailed) return Advance::kFailed;
    }
    next_op_ = 0;
    group_.EndIteration(schedule_.EndsQuietly(iteration_));
    ++iteration_;
  }
  if (schedule_.reads_peers && !group_.ReadsCount()) return Advance::kFailed;
  if (fused_ != nullptr) fused_->End();
  return Advance::kComplete;
}

WaitOutcome Operation::Execute(const Op& op, int64_t until_ns) {
  const uint32_t now = group_.iteration();
  switch (op.kind) {
    case OpKind::kCopy:
      return Copy(op) ? WaitOutcome::kReached : WaitOutcome::kFailed;
    case OpKind::kPutLines:
      Put(op);
      return WaitOutcome::kReached;
    case OpKind::kTakeLines:
      return Take(op, until_ns);
    case OpKind::kReduce:
      Reduce(op);
      return WaitOutcome::kReached;
    case OpKind::kSignal:
      group_.Signal(now, op.step);
      return WaitOutcome::kReached;
    case OpKind::kArrive:
      group_.Arrive();
      return WaitOutcome::kReached;
    case OpKind::kWaitSignal:
      return WaitForSignals({PublishedWait::Kind::kOneRank, op.peer, ProgressNumber(now, op.step)},
                            until_ns);
    case OpKind::kWaitAllSignals:
      return WaitForSignals({PublishedWait::Kind::kAllRanks, 0, ProgressNumber(now, op.step)},
                            until_ns);
    case OpKind::kWaitArrived:
      return WaitForSignals({PublishedWait::Kind::kArrivals, 0, group_.arrivals()}, until_ns);
    case OpKind::kWaitSlotFree:
      return group_.Wait({PublishedWait::Kind::kAllRanks, 0, ProgressNumber(now - 1, 0)}, until_ns,
                         deadline_ns_);
  }
  return WaitOutcome::kFailed;
}

WaitOutcome Operation::WaitForSignals(const PublishedWait& wait, int64_t until_ns) {
  const WaitOutcome outcome = group_.Wait(wait, until_ns, deadline_ns_);
  if (outcome == WaitOutcome::kReached && iteration_ == 0 && !group_.CallsFit(wait)) {
    return WaitOutcome::kFailed;
  }
  return outcome;
}

Operation::Range Operation::RangeOf(const Op& op) const {
  const uint64_t chunk = iteration_ - op.lag;
  const uint64_t length = schedule_.ChunkLength(chunk);
  Range range;
  range.chunk_begin = chunk * schedule_.chunk_elements;
  range.part_begin = schedule_.PartBegin(length, op.part_begin);
  range.count = schedule_.PartBegin(length, op.part_end) - range.part_begin;
  range.half = (group_.iteration() - op.lag) & 1u;
  return range;
}

uint64_t Operation::ElementOf(const Place& place, const Range& range) const {
  return place.block * schedule_.problem.count + range.chunk_begin + range.part_begin;
}

uint64_t Operation::ByteOffset(const Place& place, const Range& range) const {
  return ElementOf(place, range) * ElementBytes(schedule_.problem.type);
}

std::byte* Operation::Locate(const Place& place, const Range& range) const {
  if (place.space == Space::kSlot) {
    return group_.Slot(place.rank) + range.half * (group_.slot_bytes() / 2) +
           place.block * schedule_.region_bytes + range.part_begin * schedule_.slot_element_bytes;
  }
  if (place.space == Space::kStaging) {
    return staging_ + place.block * schedule_.region_bytes +
           range.part_begin * schedule_.slot_element_bytes;
  }
  const uint64_t offset = ByteOffset(place, range);
  if (place.space == Space::kOutput) return receive_ + offset;
  // Kernels take sources as const; nothing writes through a place in the input.
  return const_cast<std::byte*>(send_) + offset;
}

template <class Body>
bool Operation::ForPieces(const Range& range, const Body& body) const {
  Range piece = range;
  for (uint64_t done = 0; done < range.count; done += piece.count) {
    piece.part_begin = range.part_begin + done;
    piece.count = std::min(piece_elements_, range.count - done);
    if (!body(piece)) return false;
  }
  return true;
}

Operation::Destinations Operation::DestinationsOf(const Op& op) const {
  Destinations all;
  const auto add = [&](const Place& place) {
    if (IsUsed(place)) {
      all.used = place;
    } else {
      all.stored[all.stored_count++] = place;
    }
  };
  add(op.destination);
  if (op.has_second_destination) add(op.second_destination);
  return all;
}

const std::byte* Operation::Source(const Place& place, const Range& range) {
  if (!IsComputed(place)) return Locate(place, range);
  fused_->ComputeOperand(ElementOf(place, range), range.count, operand_piece_);
  return operand_piece_;
}

void Operation::Use(const Place& place, const Range& range, const std::byte* value) {
  fused_->UseValue(ElementOf(place, range), range.count, value);
}

bool Operation::CopyPiece(const Op& op, const Range& piece) {
  const uint64_t bytes = piece.count * ElementBytes(schedule_.problem.type);
  const Place& place = schedule_.sources[op.source_begin];
  const Destinations to = DestinationsOf(op);
  // The value goes straight to the first place that keeps it, and the operations after the
  // collective read it there. If none does, they read it where it is, unless one of their outputs
  // is written there.
  std::byte* const first = to.stored_count > 0 ? Locate(to.stored[0], piece) : value_piece_;
  const std::byte* value = first;
  if (IsComputed(place)) {
    fused_->ComputeOperand(ElementOf(place, piece), piece.count, first);
  } else if (place.space == Space::kPeerInput) {
    if (!group_.ReadPeer(place.rank, ByteOffset(place, piece), first, bytes)) return false;
  } else {
    value = Locate(place, piece);
    const bool is_overwritten = place.space == Space::kInput && fused_->overwrites_operand();
    if (to.stored_count > 0 || is_overwritten) {
      CopyBytes(first, value, bytes);
      value = first;
    }
  }
  if (to.stored_count > 1) CopyBytes(Locate(to.stored[1], piece), value, bytes);
  if (to.used) Use(*to.used, piece, value);
  return true;
}

bool Operation::Copy(const Op& op) {
  const Range range = RangeOf(op);
  if (range.count == 0) return true;
  if (fused_ != nullptr) {
    return ForPieces(range, [&](const Range& piece) { return CopyPiece(op, piece); });
  }
  const uint64_t bytes = range.count * ElementBytes(schedule_.problem.type);
  const Place& place = schedule_.sources[op.source_begin];
  std::byte* destination = Locate(op.destination, range);
  if (place.space == Space::kPeerInput) {
    return group_.ReadPeer(place.rank, ByteOffset(place, range), destination, bytes);
  }
  const std::byte* source = Locate(place, range);
  CopyBytes(destination, source, bytes);
  if (op.has_second_destination) {
    CopyBytes(Locate(op.second_destination, range), source, bytes);
  }
  return true;
}

// A schedule with lines has one chunk, which is one part.
void Operation::Put(const Op& op) {
  const Range range = RangeOf(op);
  const uint64_t bytes = range.count * ElementBytes(schedule_.problem.type);
  const std::byte* source = Source(schedule_.sources[op.source_begin], range);
  TaggedLine* lines = group_.Lines(schedule_.rank);
  PutLines(source, bytes, group_.LineTagNow(),
           lines + op.destination.block * schedule_.lines_per_region);
}

WaitOutcome Operation::Take(const Op& op, int64_t until_ns) {
  // Before the wait for the signal behind the lines, which has all that a long wait needs. With
  // fewer processors than ranks it comes soon: it gives this one up.
  const int polls = group_.has_processor_each() ? 1000 : 10;
  const Range range = RangeOf(op);
  const uint64_t bytes = range.count * ElementBytes(schedule_.problem.type);
  const Place& place = schedule_.sources[op.source_begin];
  const TaggedLine* lines = group_.Lines(place.rank) + place.block * schedule_.lines_per_region;
  const uint64_t tag = group_.LineTagNow();
  std::byte* destination = IsUsed(op.destination) ? value_piece_ : Locate(op.destination, range);
  uint64_t taken = 0;
  for (int i = 0; i < polls && taken < LinesOf(bytes); ++i) {
    taken = TakeLines(lines, taken, bytes, tag, destination);
  }
  if (taken < LinesOf(bytes)) {
    const WaitOutcome outcome = group_.Wait({PublishedWait::Kind::kOneRank, place.rank,
                                             ProgressNumber(group_.iteration(), kLinesAreThere)},
                                            until_ns, deadline_ns_);
    if (outcome != WaitOutcome::kReached) return outcome;
    if (TakeLines(lines, taken, bytes, tag, destination) < LinesOf(bytes)) {
      group_.DeclareOtherCall(place.rank);
      return WaitOutcome::kFailed;
    }
  }
  group_.NoteBegun(place.rank);
  if (IsUsed(op.destination)) Use(op.destination, range, destination);
  return WaitOutcome::kReached;
}

void Operation::Reduce(const Op& op) {
  const Range range = RangeOf(op);
  if (range.count == 0) return;
  if (fused_ == nullptr) {
    ReducePiece(op, range);
    return;
  }
  ForPieces(range, [&](const Range& piece) {
    ReducePiece(op, piece);
    return true;
  });
}

void Operation::ReducePiece(const Op& op, const Range& piece) {
  const Destinations to = DestinationsOf(op);
  sdk::ReduceArguments arguments;
  arguments.destination = value_piece_;
  if (to.stored_count > 0) {
    arguments.destination = Locate(to.stored[0], piece);
    arguments.destination_partial = to.stored[0].partial;
  }
  if (to.stored_count > 1) {
    arguments.second_destination = Locate(to.stored[1], piece);
    arguments.second_destination_partial = to.stored[1].partial;
  }
  arguments.source_count = op.source_count;
  for (uint32_t s = 0; s < op.source_count; ++s) {
    const Place& source = schedule_.sources[op.source_begin + s];
    arguments.sources[s] = Source(source, piece);
    if (source.partial) arguments.source_partial_mask |= uint64_t{1} << s;
  }
  arguments.count = piece.count;
  if (op.finish && schedule_.problem.reduction == Reduction::kAverage) {
    arguments.divisor = schedule_.problem.world_size;
  }
  kernel_(arguments);
  if (to.used) Use(*to.used, piece, static_cast<const std::byte*>(arguments.destination));
}

}  // namespace cotune::host
