#include "plugins/ucx/segment_memory.h"

#include <cstring>

namespace cotune::ucx {

uint64_t SegmentMemory::Elements(const Span& span) const {
  if (span.blocks > 1) return schedule_.problem.count * span.blocks;
  return PartAt(span.part_end) - PartAt(span.part_begin);
}

std::byte* SegmentMemory::Locate(const Place& place, const Span& span) const {
  const uint64_t part_begin = place.packed ? 0 : PartAt(span.part_begin);
  const Problem& problem = schedule_.problem;
  if (place.space == Space::kScratch) {
    const Region& region = schedule_.regions[place.region];
    const uint64_t width =
        Reduces(problem) ? PartialBytes(problem.type) : ElementBytes(problem.type);
    return scratch_ + region.offset + place.block * region.block_bytes + part_begin * width;
  }
  const uint64_t element = place.block * problem.count + segment_begin_ + part_begin;
  const uint64_t offset = element * ElementBytes(problem.type);
  if (place.space == Space::kOutput) return buffers_.receive + offset;
  return const_cast<std::byte*>(buffers_.send) + offset;
}

void SegmentMemory::Run(const LocalWork& local, sdk::ReduceKernel kernel) const {
  const uint64_t count = Elements(local.span);
  if (count == 0) return;
  const auto sources = schedule_.SourcesOf(local);
  std::byte* const destination = Locate(local.destination, local.span);
  if (!local.reduces) {
    const std::byte* const source = Locate(sources[0], local.span);
    if (source == destination) return;  // in place
    std::memcpy(destination, source, count * WidthOf(local.destination));
    return;
  }
  sdk::ReduceArguments arguments;
  arguments.destination = destination;
  arguments.destination_partial = local.destination.partial;
  arguments.source_count = local.source_count;
  for (uint32_t s = 0; s < local.source_count; ++s) {
    arguments.sources[s] = Locate(sources[s], local.span);
    if (sources[s].partial) arguments.source_partial_mask |= uint64_t{1} << s;
  }
  arguments.count = count;
  if (local.finishes && schedule_.problem.reduction == Reduction::kAverage) {
    arguments.divisor = schedule_.problem.world_size;
  }
  kernel(arguments);
}

}  // namespace cotune::ucx
