// Where the elements of a schedule's places lie for one instance, and the local work on them.
#ifndef COTUNE_PLUGINS_UCX_SEGMENT_MEMORY_H_
#define COTUNE_PLUGINS_UCX_SEGMENT_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "plugins/sdk/reduce_kernel.h"
#include "plugins/ucx/schedule.h"

namespace cotune::ucx {

// The caller's buffers of one call.
struct CallBuffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

// Of one segment of a schedule; cheap to make. `scratch` is the instance's.
class SegmentMemory {
 public:
  SegmentMemory(const Schedule& schedule, uint64_t segment, const CallBuffers& buffers,
                std::byte* scratch)
      : schedule_(schedule),
        segment_begin_(segment * schedule.segment_elements),
        length_(schedule.SegmentLength(segment)),
        buffers_(buffers),
        scratch_(scratch) {}

  uint64_t Elements(const Span& span) const;
  uint64_t Bytes(const Place& place, const Span& span) const {
    return Elements(span) * WidthOf(place);
  }
  // Nothing writes through a place in the input.
  std::byte* Locate(const Place& place, const Span& span) const;

  // `kernel` is that of the problem's type and reduction; null where it has none.
  void Run(const LocalWork& local, sdk::ReduceKernel kernel) const;

 private:
  size_t WidthOf(const Place& place) const {
    const sdk::ElementType type = schedule_.problem.type;
    return place.partial ? PartialBytes(type) : ElementBytes(type);
  }
  uint64_t PartAt(int part) const {
    return PartBegin(schedule_.problem, schedule_.parts, length_, part);
  }

  const Schedule& schedule_;
  const uint64_t segment_begin_;
  const uint64_t length_;
  const CallBuffers& buffers_;
  std::byte* const scratch_;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_SEGMENT_MEMORY_H_
