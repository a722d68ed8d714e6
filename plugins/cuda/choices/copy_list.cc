#include "plugins/cuda/choices/copy_list.h"

#include <algorithm>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;

uint64_t BlockBytes(const Problem& problem) {
  return problem.count * sdk::ElementBytes(problem.type);
}

// all_gather and all_to_all: a block from each rank.
CopyList BlockCopies(const Problem& problem, int rank) {
  const uint64_t bytes = BlockBytes(problem);
  CopyList list;
  list.phases.resize(1);
  if (bytes == 0) return list;
  const auto copy_from = [&](int from) {
    const uint64_t to_offset = static_cast<uint64_t>(from) * bytes;
    BufferCopy copy{.from_rank = from, .to_offset_bytes = to_offset, .bytes = bytes};
    if (problem.collective == Collective::kAllToAll) {
      copy.from_offset_bytes = static_cast<uint64_t>(rank) * bytes;
    } else if (problem.in_place) {
      copy.is_from_recv = true;
      copy.from_offset_bytes = to_offset;
    }
    return copy;
  };
  for (int hop = 1; hop < problem.world_size; ++hop) {
    list.phases[0].copies.push_back(copy_from((rank + hop) % problem.world_size));
  }
  if (!problem.in_place) list.last_own = copy_from(rank);
  return list;
}

// Parts of a broadcast are whole lines of memory, and so whole elements.
constexpr uint64_t kLineBytes = 512;

struct Range {
  uint64_t begin;
  uint64_t bytes;
};

// The part of `all` that a rank reads from the root and passes on.
Range ShareOf(const Problem& problem, const Range& all, int rank) {
  const auto receivers = static_cast<uint64_t>(problem.world_size - 1);
  const uint64_t even = (all.bytes + receivers - 1) / receivers;
  const uint64_t share = (even + kLineBytes - 1) / kLineBytes * kLineBytes;
  const auto place = static_cast<uint64_t>(rank < problem.root ? rank : rank - 1);
  const uint64_t begin = std::min(all.bytes, place * share);
  return {all.begin + begin, std::min(share, all.bytes - begin)};
}

// The peers read the root's receive buffer, since they do not know where its send buffer lies. Not
// in place the root fills that first. It does so in segments, at more than twice the speed of a
// link (2 H100: 958 GB/s to 397), so each segment has twice the bytes of the one before: it lies
// there when the peers have read that one. With more peers than one every segment is another copy
// for each of them in the last phase, and a copy more takes some 10 us.
std::vector<Range> BroadcastSegments(const Problem& problem) {
  const uint64_t bytes = BlockBytes(problem);
  if (problem.in_place) return {{0, bytes}};
  const int segments = problem.world_size == 2 ? 6 : 3;
  const uint64_t lines = (bytes + kLineBytes - 1) / kLineBytes;
  const uint64_t parts = (uint64_t{1} << segments) - 1;
  const uint64_t first_bytes = (lines + parts - 1) / parts * kLineBytes;
  std::vector<Range> ranges;
  uint64_t begin = 0;
  for (int s = 0; s < segments; ++s) {
    const uint64_t size = std::min(first_bytes << s, bytes - begin);
    ranges.push_back({begin, size});
    begin += size;
  }
  return ranges;
}

// broadcast: each rank reads its shares from the root and then the other shares from their owners,
// so that no link carries more than the data once.
CopyList BroadcastCopies(const Problem& problem, int rank) {
  const std::vector<Range> segments = BroadcastSegments(problem);
  CopyList list;
  list.phases.resize(segments.size() + (problem.world_size > 2 ? 1 : 0));
  // Peers pass on only data that has arrived.
  if (problem.world_size > 2) list.phases.back().ends_earlier_copies = true;
  const auto add = [&](size_t phase, int from, const Range& range) {
    if (range.bytes == 0) return;
    list.phases[phase].copies.push_back({.from_rank = from,
                                         .is_from_recv = true,
                                         .from_offset_bytes = range.begin,
                                         .to_offset_bytes = range.begin,
                                         .bytes = range.bytes});
  };
  for (size_t s = 0; s < segments.size(); ++s) {
    const Range& segment = segments[s];
    if (rank == problem.root) {
      if (problem.in_place || segment.bytes == 0) continue;
      list.phases[s].own = BufferCopy{.from_rank = rank,
                                      .from_offset_bytes = segment.begin,
                                      .to_offset_bytes = segment.begin,
                                      .bytes = segment.bytes};
      continue;
    }
    add(s, problem.root, ShareOf(problem, segment, rank));
  }
  for (int hop = 1; rank != problem.root && hop < problem.world_size; ++hop) {
    const int owner = (rank + hop) % problem.world_size;
    if (owner == problem.root) continue;
    for (const Range& segment : segments) {
      add(segments.size(), owner, ShareOf(problem, segment, owner));
    }
  }
  return list;
}

}  // namespace

SegmentCopies SegmentCopiesOf(const Problem& problem, int rank, int segment) {
  SegmentCopies copies;
  const uint64_t bytes = CopyBlockBytes(BlockBytes(problem), problem.world_size);
  if (bytes == 0) return copies;
  const auto begin_of = [&](int block) {
    return static_cast<uint64_t>(segment * problem.world_size + block) * bytes;
  };
  for (int hop = 1; hop < problem.world_size; ++hop) {
    const int from = (rank + hop) % problem.world_size;
    copies.scatter.push_back({.from_rank = from,
                              .from_offset_bytes = begin_of(rank),
                              .to_offset_bytes = begin_of(from),
                              .bytes = bytes});
    copies.gather.push_back({.from_rank = from,
                             .is_from_recv = true,
                             .from_offset_bytes = begin_of(from),
                             .to_offset_bytes = begin_of(from),
                             .bytes = bytes});
  }
  return copies;
}

CopyList CopiesOf(const Problem& problem, int rank) {
  return problem.collective == Collective::kBroadcast ? BroadcastCopies(problem, rank)
                                                      : BlockCopies(problem, rank);
}

// The waits for the segments of a broadcast stand beside its copies, and cost next to nothing.
double CopyCostUs(const Problem& problem) {
  constexpr double kBarrierUs = 4;  // a launch and an exchange of flags
  constexpr double kCopyUs = 2.5;
  constexpr double kBytesPerUs = 365'000;
  const double peers = problem.world_size - 1.0;
  if (problem.collective == Collective::kAllReduce) {
    const double moved = 2 * static_cast<double>(BlockBytes(problem)) * peers / problem.world_size;
    return (kCopySegments + 2) * kBarrierUs + 2 * kCopySegments * peers * kCopyUs +
           moved / kBytesPerUs;
  }
  const bool is_broadcast = problem.collective == Collective::kBroadcast;
  const double phases = is_broadcast && problem.world_size > 2 ? 2 : 1;
  const double bytes_out = static_cast<double>(BlockBytes(problem)) * (is_broadcast ? 1 : peers);
  return (phases + 1) * kBarrierUs + phases * peers * kCopyUs +
         (is_broadcast ? phases : 1) * bytes_out / kBytesPerUs;
}

}  // namespace cotune::cuda
