// A collective as data: the messages and the local work of one rank, made before it runs.
//
// An algorithm is a pure function from (problem, rank, parameters) to a Schedule. One executor runs
// schedules over UCX (operation.h); a test runs the same schedules of all ranks in one thread.
//
// Segments, lanes, instances. Every block of a buffer is cut into segments of `segment_elements`.
// A lane is a list of steps. Lanes do not depend on each other, and neither do segments. A lane of
// a segment is an instance; instances begin in the order of (segment, lane), at most `window` of
// them run at once, and each has scratch memory of its own.
//
// Steps. All messages of a step are posted when it begins. When they are complete its local work
// runs, in order, and then the next step begins. A message that has no elements in a segment is
// posted by neither side.
//
// Matching. Message i that rank a sends to rank b in a lane is the message i that b receives from a
// in that lane, whatever their steps are.
#ifndef COTUNE_PLUGINS_UCX_SCHEDULE_H_
#define COTUNE_PLUGINS_UCX_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/ucx/sdk_names.h"

namespace cotune::ucx {

enum class Space : uint8_t { kInput, kOutput, kScratch };

// Where elements lie: in block `block` of the caller's send or receive buffer, or of region
// `region` of the instance's scratch. `partial` marks f32 partial results of a 16-bit float type.
// `packed`: the elements begin at the begin of the block, also where they are not the first parts
// of it.
struct Place {
  Space space = Space::kInput;
  bool partial = false;
  bool packed = false;
  uint16_t region = 0;
  uint16_t block = 0;
};

// Which elements: parts [part_begin, part_end) of the segment of one block; or, in schedules of one
// segment, all of `blocks` blocks in a row.
struct Span {
  uint16_t blocks = 1;
  uint16_t part_begin = 0;
  uint16_t part_end = 0;
};

struct Message {
  bool is_send = false;
  uint8_t peer = 0;
  uint16_t order = 0;  // among those to, or from, this peer in the lane
  Place place;
  Span span;
};

struct LocalWork {
  bool reduces = false;   // else copies sources[source_begin]
  bool finishes = false;  // the result is final: an average divides
  uint32_t source_begin = 0;
  uint32_t source_count = 0;  // range of Schedule::sources
  Place destination;
  Span span;
};

struct Step {
  uint32_t message_begin = 0;
  uint32_t message_end = 0;
  uint32_t work_begin = 0;
  uint32_t work_end = 0;
};

struct Lane {
  uint32_t step_begin = 0;
  uint32_t step_end = 0;
};

struct Region {
  uint64_t offset = 0;  // bytes from the begin of the instance's scratch
  uint64_t block_bytes = 0;
};

struct Schedule {
  Problem problem;
  int rank = 0;
  int parts = 1;  // of each segment
  int window = 1;
  uint64_t segment_elements = 0;
  uint64_t scratch_bytes = 0;  // of one instance
  std::vector<Lane> lanes;
  std::vector<Step> steps;
  std::vector<Message> messages;
  std::vector<LocalWork> work;
  std::vector<Place> sources;
  std::vector<Region> regions;

  uint64_t Segments() const {
    return problem.count == 0 ? 0 : (problem.count - 1) / segment_elements + 1;
  }
  // Equal on all ranks, as the numbers of lanes and segments.
  uint64_t Instances() const { return Segments() * lanes.size(); }
  uint64_t SegmentLength(uint64_t segment) const {
    const uint64_t rest = problem.count - segment * segment_elements;
    return rest < segment_elements ? rest : segment_elements;
  }
  std::span<const Message> MessagesOf(const Step& step) const {
    return {messages.data() + step.message_begin, messages.data() + step.message_end};
  }
  std::span<const LocalWork> WorkOf(const Step& step) const {
    return {work.data() + step.work_begin, work.data() + step.work_end};
  }
  std::span<const Place> SourcesOf(const LocalWork& local) const {
    return {sources.data() + local.source_begin, local.source_count};
  }
  // Messages of the step that has most of them.
  uint32_t LargestStep() const;
  // Memory that instances need at once.
  uint64_t ScratchBytes() const;
};

// First element of part `part` of a segment of `length` elements; parts begin on cache lines.
uint64_t PartBegin(const Problem& problem, int parts, uint64_t length, int part);

// What a choice's name says besides its algorithm. 0: the algorithm has no such parameter.
struct Parameters {
  int radix = 0;
  uint64_t segment_bytes = 0;  // of a message; 0: one segment
  int posts = 0;               // instances at once
};

// The shape that all steps share.
struct Shape {
  int parts = 1;
  // A segment of a block has `segment_bytes` times this many bytes, for algorithms whose messages
  // are parts of it.
  int messages_per_segment = 1;
  Parameters parameters;
};

// Collects the steps of one rank. Append order is the order of the schedule.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Problem& problem, int rank, const Shape& shape);

  static Place Input(int block = 0) { return {Space::kInput, false, false, 0, U16(block)}; }
  static Place Output(int block = 0) { return {Space::kOutput, false, false, 0, U16(block)}; }
  static Place Scratch(int region, bool partial, int block = 0) {
    return {Space::kScratch, partial, false, U16(region), U16(block)};
  }
  static Place Packed(int region, bool partial) {
    return {Space::kScratch, partial, true, U16(region), 0};
  }

  // Scratch for `blocks` whole segments, or for so many parts of one.
  int AddRegion(int blocks = 1);
  int AddRegionOfParts(int parts);

  void BeginLane();
  void BeginStep();
  Span All() const { return {1, 0, U16(schedule_.parts)}; }
  static Span Parts(int begin, int end) { return {1, U16(begin), U16(end)}; }
  Span Blocks(int blocks) const { return {U16(blocks), 0, U16(schedule_.parts)}; }

  void Send(int peer, Place from, Span span) { Append(true, peer, from, span); }
  void Receive(int peer, Place to, Span span) { Append(false, peer, to, span); }
  void Copy(Place from, Place to, Span span);
  // Combines the sources in the order given.
  void Reduce(const std::vector<Place>& from, Place to, Span span, bool finishes);

  Schedule Finish();

 private:
  static uint16_t U16(int value) { return static_cast<uint16_t>(value); }
  void Append(bool is_send, int peer, Place place, Span span);
  LocalWork& AppendWork(const std::vector<Place>& from, Place to, Span span);
  int AddRegionOf(uint64_t block_elements, int blocks);

  Schedule schedule_;
  std::vector<uint16_t> sent_;      // in the present lane, by peer
  std::vector<uint16_t> received_;  // the same
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_SCHEDULE_H_
