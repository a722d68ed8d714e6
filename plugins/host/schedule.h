// A collective as data: the few operations that one rank repeats for every chunk.
//
// An algorithm is a pure function from (problem, rank, chunk size) to a Schedule. One executor runs
// schedules on shared memory (executor.h); a test runs the same schedules on plain arrays.
//
// Chunks and iterations. A block is what one rank contributes or gets; it is cut into chunks of
// `chunk_elements`. Iteration i runs the operations in order; an operation with lag l works on
// chunk i - l and is skipped where there is no such chunk, so that the phases of an algorithm
// overlap.
//
// Fused schedules. A backend may run local operations with a collective (fused_operations.h). The
// list of operations is the same then: a read of kInput is one of what the operations before the
// collective compute, and a write to kOutput gives the value to the operations after it. Chunks and
// parts hold whole rows, because such operations may reduce rows.
//
// Slots. Every rank owns one slot, split in two halves that iterations use in turn: chunk c uses
// half (first + c) % 2, `first` being the group's iteration number of chunk 0. A half holds
// `regions` regions of one chunk each. A rank writes only its own slot.
//
// Order. Each rank has one progress number, which only grows: kSignal k in group iteration n makes
// it (n, k), and the end of iteration n makes it (n + 1, 0). kWaitSignal waits for one rank's
// number, kWaitAllSignals for the same of all ranks. kArrive adds one to the group's arrival count,
// which every rank does equally often; kWaitArrived waits until all ranks have arrived as often as
// this one. Before it first writes its slot in an iteration n a rank waits (kWaitSlotFree) until
// all ranks have ended iteration n - 2. Lines that carry iteration n say the same of their writer
// as progress (n, 0).
//
// In a schedule that ends with a signal in its last iteration n, a rank does not store (n + 1, 0)
// (EndsQuietly). Whoever waits for that number is in iteration n + 2, and gets it by the first
// signal or the end of n + 1, which need nothing of n + 2.
#ifndef COTUNE_PLUGINS_HOST_SCHEDULE_H_
#define COTUNE_PLUGINS_HOST_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/host/sdk_names.h"

namespace cotune::host {

inline constexpr int kMaxRanks = 64;
// Signals of one iteration are numbered 1 to kMaxStep; the ring needs 2 * (kMaxRanks - 1).
inline constexpr int kMaxStep = 255;
inline constexpr size_t kCacheLineBytes = 64;
// Ranks that meet by reading each other's progress. It takes one way of a cache line between two
// processors; a common count takes as many as there are ranks, but wakes sleepers by one call.
inline constexpr int kMaxRanksMeetingBySignals = 8;

// Lines of a rank that carry data with its tag (tagged_line.h), and how many each half of them has.
inline constexpr size_t kLinePayloadBytes = kCacheLineBytes - sizeof(uint64_t);
inline constexpr uint64_t kLinesPerHalf = 32;

// The signal behind them.
inline constexpr int kLinesAreThere = 1;

// Lines that `bytes` bytes take.
constexpr uint64_t LinesOf(uint64_t bytes) {
  return (bytes + kLinePayloadBytes - 1) / kLinePayloadBytes;
}

enum class Space : uint8_t { kInput, kOutput, kSlot, kPeerInput, kLines, kStaging };

// The place that an operation reads or writes: the chunk of block `block` of the caller's send or
// receive buffer, or region `block` of the slot of rank `rank`, or (as the source of a copy only)
// block `block` of the send buffer of rank `rank`, straight from that process; or region `block` of
// the tagged lines of rank `rank` (kPutLines and kTakeLines only), or part `block` of private
// memory of the executor. `partial` marks f32 partial results of a 16-bit type (see
// ReduceArguments).
struct Place {
  Space space = Space::kInput;
  uint8_t rank = 0;
  uint16_t block = 0;
  bool partial = false;
};

enum class OpKind : uint8_t {
  kCopy,            // sources[0] → destination (and second_destination)
  kPutLines,        // sources[0] → the own lines at `destination`, tagged with iteration and call
  kTakeLines,       // the lines at sources[0], when they have come → destination
  kReduce,          // sources, in order → destination (and second_destination)
  kSignal,          // progress of this rank becomes `step` of this iteration
  kWaitSignal,      // until rank `peer` has signalled `step` of this iteration
  kWaitAllSignals,  // until every rank has signalled `step` of this iteration
  kArrive,          // adds one to the arrival count
  kWaitArrived,     // until all ranks have arrived
  kWaitSlotFree,    // until all ranks have ended the iteration before the last
};

// Which iterations an operation takes part in.
enum class When : uint8_t { kAlways, kFirst, kLast };

struct Op {
  OpKind kind = OpKind::kCopy;
  When when = When::kAlways;
  uint8_t lag = 0;
  uint8_t peer = 0;
  uint8_t step = 0;
  bool has_second_destination = false;
  bool finish = false;  // kReduce: the result is final, an average divides here
  uint16_t part_begin = 0;
  uint16_t part_end = 1;  // parts [part_begin, part_end) of the chunk
  uint32_t source_begin = 0;
  uint32_t source_count = 0;  // range of Schedule::sources
  Place destination;
  Place second_destination;
};

struct Schedule {
  Problem problem;
  int rank = 0;
  int parts = 1;             // each chunk is cut into so many parts
  int max_lag = 0;           // largest lag of the operations
  int regions = 1;           // of a half slot
  bool reads_peers = false;  // some rank has a place in kPeerInput: send buffers are published
  uint64_t chunk_elements = 0;
  uint64_t unit_elements = 1;  // chunks but the last, and parts of them, are multiples of it
  // Element i of a chunk lies this times i into a region, also where less is stored for an element:
  // parts that hold partial results and parts that hold elements then never overlap.
  uint64_t slot_element_bytes = 0;
  uint64_t region_bytes = 0;
  uint64_t lines_per_region = 0;
  std::vector<Op> ops;
  std::vector<Place> sources;

  uint64_t Chunks() const {
    return problem.count == 0 ? 0 : (problem.count - 1) / chunk_elements + 1;
  }
  // Equal on all ranks, as every number of a schedule that is not an operation.
  uint64_t Iterations() const { return problem.count == 0 ? 0 : Chunks() + max_lag; }
  // Whether the end of an iteration goes unsaid where the rank has signalled in it. A broadcast's
  // inner ranks signal late, and the root would wait for them.
  bool EndsQuietly(uint64_t iteration) const {
    return iteration + 1 == Iterations() && problem.collective != Collective::kBroadcast;
  }
  // Elements of chunk `chunk`; the last one is shorter as a rule.
  uint64_t ChunkLength(uint64_t chunk) const {
    const uint64_t rest = problem.count - chunk * chunk_elements;
    return rest < chunk_elements ? rest : chunk_elements;
  }
  // Returns true if the regions fit a slot. They do not if a row is larger than what half a slot
  // has for a region.
  bool FitsSlot(uint64_t slot_bytes) const {
    return static_cast<uint64_t>(regions) * region_bytes <= slot_bytes / 2;
  }
  // First element of part `part` of a chunk of `length` elements; part boundaries lie on multiples
  // of the unit.
  uint64_t PartBegin(uint64_t length, int part) const;
  // Returns true if some ranks may run this schedule in a call and others `other`, which is one of
  // the same algorithm and problem: whatever ranks exchange lies at the same place in both.
  bool FitsTogether(const Schedule& other) const;
  // True when `op` does something in iteration `iteration` (counted from 0 in the schedule). Waits
  // and signals with lag l run in every iteration below Chunks() + l.
  bool IsActive(const Op& op, uint64_t iteration) const;
};

// The sizes that the caller of an algorithm chooses.
struct SlotSize {
  uint64_t slot_bytes = 0;
  uint64_t chunk_bytes = 0;    // how much of a slot one step should take
  uint64_t unit_elements = 0;  // the row that stays whole; 0: chunks and parts are cache lines
  // Operations before the collective compute the input. An algorithm reads each element of it once,
  // and then from where it has put it.
  bool input_is_computed = false;
};

// The part of a schedule that all algorithms share: the size of a chunk, for a slot that is split
// into `regions` regions which hold partial results or not.
struct SlotShape {
  int regions = 1;  // 0: the slot is not used, and any chunk fits
  int parts = 1;
  bool partial = false;
  bool reads_peers = false;
  SlotSize size{};
};

// Elements of one chunk: whole units, at most what half a slot holds but one unit at least, and
// such that all chunks but the last are equal and that one is nearly so.
uint64_t ChunkElements(const Problem& problem, const SlotShape& shape);

// Collects the operations of one rank. Append order is execution order.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Problem& problem, int rank, const SlotShape& shape);

  static Place Input(int block = 0) { return {Space::kInput, 0, U16(block), false}; }
  static Place Output(int block = 0) { return {Space::kOutput, 0, U16(block), false}; }
  static Place Slot(int rank, int region = 0) {
    return {Space::kSlot, static_cast<uint8_t>(rank), U16(region), false};
  }
  static Place PeerInput(int rank, int block = 0) {
    return {Space::kPeerInput, static_cast<uint8_t>(rank), U16(block), false};
  }
  static Place Lines(int rank, int region = 0) {
    return {Space::kLines, static_cast<uint8_t>(rank), U16(region), false};
  }
  static Place Staging(int part) { return {Space::kStaging, 0, U16(part), false}; }
  static Place PartialSlot(int rank, int region = 0) {
    return {Space::kSlot, static_cast<uint8_t>(rank), U16(region), true};
  }

  // Everything appended from here on has this lag and covers these parts.
  void SetLag(int lag) { lag_ = static_cast<uint8_t>(lag); }
  void SetParts(int begin, int end);
  void SetWhen(When when) { when_ = when; }

  void Copy(Place source, Place destination);
  void Copy(Place source, Place destination, Place second_destination);
  void PutLines(Place source, Place lines);
  void TakeLines(Place lines, Place destination);
  void Reduce(const std::vector<Place>& sources, Place destination, bool finish);
  void Reduce(const std::vector<Place>& sources, Place destination, Place second_destination,
              bool finish);
  void Signal(int step);
  void WaitSignal(int peer, int step);
  // All ranks meet. After the signals that were appended so far.
  void Barrier();
  void WaitSlotFree();

  Schedule Finish();

 private:
  static uint16_t U16(int value) { return static_cast<uint16_t>(value); }
  Op& Append(OpKind kind);

  Schedule schedule_;
  uint8_t lag_ = 0;
  When when_ = When::kAlways;
  int last_step_ = 0;
  uint16_t part_begin_ = 0;
  uint16_t part_end_ = 1;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_SCHEDULE_H_
