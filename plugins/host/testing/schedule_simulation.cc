#include "plugins/host/testing/schedule_simulation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "plugins/host/testing/host_ranks.h"
#include "plugins/sdk/reduce_kernel.h"

namespace cotune::host {
namespace {

constexpr uint64_t kHalfLineBytes = kLinesPerHalf * kLinePayloadBytes;

template <typename T>
T* NewZeros(size_t count) {
  void* memory = std::calloc(count, sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

void Join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// The offset of the send buffer in the receive buffer, or the other way round, when in place.
uint64_t BlockOffset(const Problem& problem, int rank) {
  return static_cast<uint64_t>(rank) * problem.count * ElementBytes(problem.type);
}

}  // namespace

ScheduleSimulation::ScheduleSimulation(int world_size, uint64_t slot_bytes, uint64_t seed)
    : world_size_(world_size),
      slot_bytes_(slot_bytes),
      stride_bytes_(slot_bytes + 2 * kHalfLineBytes),
      random_(seed) {
  const auto ranks = static_cast<size_t>(world_size);
  slots_.resize(ranks * stride_bytes_);
  tags_.resize(ranks * 2 * kLinesPerHalf);
  last_writes_.reset(NewZeros<LastWrite>(slots_.size()));
  last_reads_.reset(NewZeros<uint32_t>(slots_.size() * ranks));
  ranks_.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    ranks_[r].clock.assign(ranks, 0);
    ranks_[r].clock[r] = 1;
    ranks_[r].published.assign(ranks, 0);
    ranks_[r].seen.assign(ranks, 0);
  }
  arrived_clock_.assign(ranks, 0);
}

const Schedule& ScheduleSimulation::ScheduleOf(size_t collective, int rank) const {
  return (*collectives_)[collective].schedules[static_cast<size_t>(rank)];
}

void ScheduleSimulation::Prepare(const std::vector<SimulatedCollective>& collectives) {
  collectives_ = &collectives;
  for (int r = 0; r < world_size_; ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    for (const SimulatedCollective& collective : collectives) {
      const Problem& problem = collective.schedules[0].problem;
      std::vector<std::byte> input = ExactInput(problem, r);
      std::vector<std::byte> output(ReceiveElements(problem) * ElementBytes(problem.type),
                                    std::byte{0xa5});
      if (collective.in_place) {
        // One array is both: the larger one, with the input in its place.
        std::vector<std::byte>& larger = output.size() >= input.size() ? output : input;
        if (problem.collective == Collective::kAllGather && !input.empty()) {
          std::memcpy(output.data() + BlockOffset(problem, r), input.data(), input.size());
        } else if (&larger == &output) {
          output = input;
        }
        output = larger;
        input.clear();
      }
      rank.inputs.push_back(std::move(input));
      rank.outputs.push_back(std::move(output));
    }
  }
}

std::string ScheduleSimulation::Run(const std::vector<SimulatedCollective>& collectives) {
  Prepare(collectives);
  std::vector<int> blocked;
  std::vector<int> open;
  for (int r = 0; r < world_size_; ++r) open.push_back(r);
  while (!open.empty()) {
    if (!race_.empty()) return race_;
    const size_t pick = random_() % open.size();
    const int rank = open[pick];
    const bool moved = Step(rank);
    if (IsDone(ranks_[static_cast<size_t>(rank)]) || !moved) {
      if (!moved) blocked.push_back(rank);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    if (moved) {  // whoever waited may go on now
      open.insert(open.end(), blocked.begin(), blocked.end());
      blocked.clear();
    }
  }
  if (!blocked.empty()) {
    const Rank& rank = ranks_[static_cast<size_t>(blocked.front())];
    return "deadlock: rank " + std::to_string(blocked.front()) + " waits in " +
           collectives[rank.collective].name + " op " + std::to_string(rank.op);
  }
  return CompareOutputs();
}

bool ScheduleSimulation::Step(int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  const Schedule& schedule = ScheduleOf(rank.collective, r);
  if (rank.iteration >= schedule.Iterations()) {
    ++rank.collective;
    rank.iteration = 0;
    return true;
  }
  if (rank.op == schedule.ops.size()) {
    EndIteration(r);
    return true;
  }
  const Op& op = schedule.ops[rank.op];
  if (schedule.IsActive(op, rank.iteration)) {
    if (op.kind == OpKind::kCopy || op.kind == OpKind::kReduce) {
      ExecuteData(schedule, op, r);
    } else if (op.kind == OpKind::kPutLines) {
      PutLines(schedule, op, r);
    } else if (op.kind == OpKind::kTakeLines) {
      if (!TakeLines(schedule, op, r)) return false;
    } else if (!ExecuteSync(op, r)) {
      return false;
    }
  }
  ++rank.op;
  return true;
}

void ScheduleSimulation::Publish(Rank& rank, uint64_t progress) {
  rank.progress = progress;
  rank.published = rank.clock;
  ++rank.clock[static_cast<size_t>(&rank - ranks_.data())];
}

void ScheduleSimulation::EndIteration(int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  const bool quietly = ScheduleOf(rank.collective, r).EndsQuietly(rank.iteration);
  rank.op = 0;
  ++rank.iteration;
  const bool has_signalled = rank.progress > uint64_t{rank.group_iteration} * 256;
  ++rank.group_iteration;
  if (!quietly || !has_signalled) Publish(rank, uint64_t{rank.group_iteration} * 256);
}

bool ScheduleSimulation::ExecuteSync(const Op& op, int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  const uint64_t now = uint64_t{rank.group_iteration} * 256;
  switch (op.kind) {
    case OpKind::kSignal:
      Publish(rank, now + op.step);
      return true;
    case OpKind::kArrive:
      ++rank.arrivals;
      ++total_arrivals_;
      Join(arrived_clock_, rank.clock);
      ++rank.clock[static_cast<size_t>(r)];
      return true;
    case OpKind::kWaitArrived:
      if (total_arrivals_ < rank.arrivals * static_cast<uint32_t>(world_size_)) return false;
      Join(rank.clock, arrived_clock_);
      return true;
    case OpKind::kWaitSignal: {
      const Rank& peer = ranks_[op.peer];
      if (peer.progress < now + op.step) return false;
      Join(rank.clock, peer.published);
      return true;
    }
    case OpKind::kWaitAllSignals:
      return JoinAll(rank, now + op.step);
    default:
      break;
  }
  // kWaitSlotFree: all have ended the iteration before the last one.
  return JoinAll(rank, now >= 256 ? now - 256 : 0);
}

bool ScheduleSimulation::JoinAll(Rank& rank, uint64_t needed) {
  const auto has_told = [&](size_t peer) { return rank.seen[peer] >= needed; };
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].progress < needed && !has_told(r)) return false;
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!has_told(r)) Join(rank.clock, ranks_[r].published);
  }
  return true;
}

std::byte* ScheduleSimulation::Locate(const Schedule& schedule, const Place& place, const Op& op,
                                      int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  const uint64_t chunk = rank.iteration - op.lag;
  const uint64_t part = schedule.PartBegin(schedule.ChunkLength(chunk), op.part_begin);
  if (place.space == Space::kSlot) {
    const uint64_t half = (rank.group_iteration - op.lag) % 2 * (slot_bytes_ / 2);
    return slots_.data() + place.rank * stride_bytes_ + half + place.block * schedule.region_bytes +
           part * schedule.slot_element_bytes;
  }
  const Problem& problem = schedule.problem;
  const bool in_place = (*collectives_)[rank.collective].in_place;
  if (place.space == Space::kPeerInput) return LocatePeerInput(schedule, place, op, r);
  if (place.space == Space::kStaging) {
    return rank.staging.data() + place.block * schedule.region_bytes;
  }
  if (place.space == Space::kLines) {
    return slots_.data() + place.rank * stride_bytes_ + slot_bytes_ +
           rank.group_iteration % 2 * kHalfLineBytes +
           place.block * schedule.lines_per_region * kLinePayloadBytes;
  }
  uint64_t offset = (place.block * problem.count + chunk * schedule.chunk_elements + part) *
                    ElementBytes(problem.type);
  std::vector<std::byte>& output = rank.outputs[rank.collective];
  if (place.space == Space::kOutput) {
    if (in_place && problem.collective == Collective::kReduceScatter)
      offset += BlockOffset(problem, r);
    return output.data() + offset;
  }
  if (!in_place) return rank.inputs[rank.collective].data() + offset;
  if (problem.collective == Collective::kAllGather) offset += BlockOffset(problem, r);
  return output.data() + offset;
}

std::byte* ScheduleSimulation::LocatePeerInput(const Schedule& schedule, const Place& place,
                                               const Op& op, int r) {
  const Rank& rank = ranks_[static_cast<size_t>(r)];
  Rank& peer = ranks_[place.rank];
  const bool inside = peer.collective == rank.collective && (peer.iteration > 0 || peer.op > 0);
  if (!inside) {
    race_ = "race: rank " + std::to_string(r) + " reads the send buffer of rank " +
            std::to_string(place.rank) + ", which is not inside " +
            (*collectives_)[rank.collective].name;
  }
  const Problem& problem = schedule.problem;
  const uint64_t chunk = rank.iteration - op.lag;
  const uint64_t part = schedule.PartBegin(schedule.ChunkLength(chunk), op.part_begin);
  uint64_t offset = (place.block * problem.count + chunk * schedule.chunk_elements + part) *
                    ElementBytes(problem.type);
  const bool in_place = (*collectives_)[rank.collective].in_place;
  if (!in_place) return peer.inputs[rank.collective].data() + offset;
  if (problem.collective == Collective::kAllGather) offset += BlockOffset(problem, place.rank);
  return peer.outputs[rank.collective].data() + offset;
}

std::span<ScheduleSimulation::LineTag> ScheduleSimulation::TagsOf(const Schedule& schedule,
                                                                  const Place& lines, int r) {
  const uint64_t half = ranks_[static_cast<size_t>(r)].group_iteration % 2;
  const uint64_t first = (lines.rank * 2 + half) * kLinesPerHalf;
  const uint64_t begin = lines.block * schedule.lines_per_region;
  if (begin + schedule.lines_per_region > kLinesPerHalf) race_ = "access beyond the lines";
  return std::span(tags_).subspan(first, kLinesPerHalf).subspan(begin, schedule.lines_per_region);
}

void ScheduleSimulation::PutLines(const Schedule& schedule, const Op& op, int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  ExecuteData(schedule, op, r);
  for (LineTag& tag : TagsOf(schedule, op.destination, r)) {
    tag = {rank.group_iteration, rank.clock};
  }
  ++rank.clock[static_cast<size_t>(r)];
}

bool ScheduleSimulation::TakeLines(const Schedule& schedule, const Op& op, int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  const Place& lines = schedule.sources[op.source_begin];
  const std::span<const LineTag> tags = TagsOf(schedule, lines, r);
  for (const LineTag& tag : tags) {
    if (tag.iteration != rank.group_iteration) return false;
  }
  for (const LineTag& tag : tags) Join(rank.clock, tag.clock);
  ExecuteData(schedule, op, r);
  rank.seen[lines.rank] = std::max(rank.seen[lines.rank], uint64_t{rank.group_iteration} * 256);
  return true;
}

void ScheduleSimulation::ExecuteData(const Schedule& schedule, const Op& op, int r) {
  Rank& rank = ranks_[static_cast<size_t>(r)];
  rank.staging.resize(
      std::max(rank.staging.size(), static_cast<size_t>(world_size_) * schedule.region_bytes));
  const Problem& problem = schedule.problem;
  const uint64_t length = schedule.ChunkLength(rank.iteration - op.lag);
  const uint64_t count =
      schedule.PartBegin(length, op.part_end) - schedule.PartBegin(length, op.part_begin);
  if (count == 0) return;
  const auto bytes = [&](const Place& place) {
    return count * (place.partial ? PartialBytes(problem.type) : ElementBytes(problem.type));
  };
  sdk::ReduceArguments arguments;
  arguments.source_count = op.source_count;
  arguments.count = count;
  for (uint32_t s = 0; s < op.source_count; ++s) {
    const Place& source = schedule.sources[op.source_begin + s];
    arguments.sources[s] = Locate(schedule, source, op, r);
    if (source.partial) arguments.source_partial_mask |= uint64_t{1} << s;
    NoteAccess(static_cast<const std::byte*>(arguments.sources[s]), bytes(source), r, false);
  }
  arguments.destination = Locate(schedule, op.destination, op, r);
  arguments.destination_partial = op.destination.partial;
  NoteAccess(static_cast<std::byte*>(arguments.destination), bytes(op.destination), r, true);
  if (op.has_second_destination) {
    arguments.second_destination = Locate(schedule, op.second_destination, op, r);
    arguments.second_destination_partial = op.second_destination.partial;
    NoteAccess(static_cast<std::byte*>(arguments.second_destination), bytes(op.second_destination),
               r, true);
  }
  if (op.finish && problem.reduction == Reduction::kAverage) arguments.divisor = world_size_;
  if (op.kind == OpKind::kReduce) {
    sdk::FindReduceKernel(problem.type, problem.reduction)(arguments);
    return;
  }
  std::memmove(arguments.destination, arguments.sources[0], bytes(op.destination));
  if (op.has_second_destination) {
    std::memmove(arguments.second_destination, arguments.sources[0], bytes(op.destination));
  }
}

void ScheduleSimulation::NoteAccess(const std::byte* at, uint64_t bytes, int r, bool writes) {
  const bool is_slot = at >= slots_.data() && at < slots_.data() + slots_.size();
  if (!is_slot) return;
  const auto self = static_cast<size_t>(r);
  Rank& rank = ranks_[self];
  const auto begin = static_cast<size_t>(at - slots_.data());
  if (writes && begin / stride_bytes_ != self) race_ = "rank writes the slot of another rank";
  const auto is_line = [&](size_t i) { return i % stride_bytes_ >= slot_bytes_; };
  const size_t end = begin + bytes - 1;
  if (begin / stride_bytes_ != end / stride_bytes_ || is_line(begin) != is_line(end)) {
    race_ = "access beyond the slot";
  }
  // Plain pointers: this loop is most of a simulation, and tests are compiled with calls of every
  // operator of a container.
  const size_t ranks = ranks_.size();
  const uint32_t* const clock = rank.clock.data();
  LastWrite* const last_writes = last_writes_.get();
  uint32_t* const last_reads = last_reads_.get();
  if (!race_.empty()) return;
  for (size_t i = begin; i <= end; ++i) {
    LastWrite& byte = last_writes[i];
    uint32_t* const read = last_reads + i * ranks;
    bool ordered = byte.writer == 0 || byte.written <= clock[byte.writer - 1];
    if (writes) {
      for (size_t reader = 0; reader < ranks; ++reader) {
        ordered = ordered && read[reader] <= clock[reader];
      }
      byte.writer = static_cast<uint32_t>(r) + 1;
      byte.written = clock[self];
    } else {
      read[self] = clock[self];
    }
    if (!ordered) {
      race_ = "race: rank " + std::to_string(r) + (writes ? " writes" : " reads") + " byte " +
              std::to_string(i % stride_bytes_) + " of slot " + std::to_string(i / stride_bytes_) +
              " in " + (*collectives_)[rank.collective].name + " op " + std::to_string(rank.op);
      return;
    }
  }
}

std::string ScheduleSimulation::CompareOutputs() const {
  for (size_t c = 0; c < collectives_->size(); ++c) {
    const SimulatedCollective& collective = (*collectives_)[c];
    const Problem& problem = collective.schedules[0].problem;
    std::vector<std::vector<std::byte>> inputs;
    for (int r = 0; r < world_size_; ++r) inputs.push_back(ExactInput(problem, r));
    for (int r = 0; r < world_size_; ++r) {
      const std::vector<std::byte> expected = ExpectedOutput(problem, r, inputs);
      const bool at_block = collective.in_place && problem.collective == Collective::kReduceScatter;
      const uint64_t offset = at_block ? BlockOffset(problem, r) : 0;
      const std::byte* got = ranks_[static_cast<size_t>(r)].outputs[c].data() + offset;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (got[i] == expected[i]) continue;
        return "wrong byte " + std::to_string(i) + " on rank " + std::to_string(r) + " after " +
               collective.name;
      }
    }
  }
  return "";
}

}  // namespace cotune::host
