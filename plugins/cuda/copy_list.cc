#include "plugins/cuda/copy_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using border::Collective;
using border::Problem;

// Below this size the copies take less time than their start.
constexpr uint64_t kCopyBytesMin = 1 << 20;
// And below this one it takes longer than the copies gain.
constexpr uint64_t kSegmentedBytesMin = 32 << 20;

uint64_t BlockBytes(const Problem& problem) {
  return problem.count * border::ElementBytes(problem.type);
}

// all_gather and all_to_all: a block for each rank.
CopyList BlockCopies(const Problem& problem, int rank) {
  const uint64_t bytes = BlockBytes(problem);
  CopyList list{.phases = {{}}};
  if (bytes == 0) return list;
  const bool is_exchange = problem.collective == Collective::kAllToAll;
  const auto copy_to = [&](int to) {
    return BufferCopy{.from_offset_bytes = is_exchange ? static_cast<uint64_t>(to) * bytes : 0,
                      .to_rank = to,
                      .to_offset_bytes = static_cast<uint64_t>(rank) * bytes,
                      .bytes = bytes};
  };
  for (int hop = 1; hop < problem.world_size; ++hop) {
    list.phases[0].push_back(copy_to((rank + hop) % problem.world_size));
  }
  if (!problem.in_place) list.own = copy_to(rank);
  return list;
}

// The part of a broadcast that a rank passes on which is not the root: whole lines of memory.
struct Share {
  uint64_t begin;
  uint64_t bytes;
};
Share ShareOf(const Problem& problem, int rank) {
  constexpr uint64_t kLineBytes = 512;
  const uint64_t all = BlockBytes(problem);
  const auto receivers = static_cast<uint64_t>(problem.world_size - 1);
  const uint64_t even = (all + receivers - 1) / receivers;
  const uint64_t share = (even + kLineBytes - 1) / kLineBytes * kLineBytes;
  const auto place = static_cast<uint64_t>(rank < problem.root ? rank : rank - 1);
  const uint64_t begin = std::min(all, place * share);
  return {begin, std::min(share, all - begin)};
}

// broadcast: the root copies to each rank its share, which copies it to the others, so that no link
// carries more than the data once.
CopyList BroadcastCopies(const Problem& problem, int rank) {
  CopyList list;
  list.phases.resize(problem.world_size > 2 ? 2 : 1);
  const auto add = [&](size_t phase, int to, const Share& share) {
    if (share.bytes == 0) return;
    list.phases[phase].push_back({phase == 1, share.begin, to, share.begin, share.bytes});
  };
  for (int hop = 1; hop < problem.world_size; ++hop) {
    const int to = (rank + hop) % problem.world_size;
    if (rank == problem.root) {
      add(0, to, ShareOf(problem, to));
    } else if (to != problem.root) {
      add(1, to, ShareOf(problem, rank));
    }
  }
  const uint64_t bytes = BlockBytes(problem);
  if (rank == problem.root && !problem.in_place && bytes > 0) {
    list.own = BufferCopy{.to_rank = rank, .bytes = bytes};
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
    const int to = (rank + hop) % problem.world_size;
    copies.scatter.push_back({.from_offset_bytes = begin_of(to),
                              .to_rank = to,
                              .to_offset_bytes = begin_of(rank),
                              .bytes = bytes});
    copies.gather.push_back({.is_from_recv = true,
                             .from_offset_bytes = begin_of(rank),
                             .to_rank = to,
                             .to_offset_bytes = begin_of(rank),
                             .bytes = bytes});
  }
  return copies;
}

CopyList CopiesOf(const Problem& problem, int rank) {
  return problem.collective == Collective::kBroadcast ? BroadcastCopies(problem, rank)
                                                      : BlockCopies(problem, rank);
}

std::string CopyRefusal(const Problem& problem) {
  if (!problem.is_symmetric) return "it works on buffers that are registered on all ranks";
  const bool is_all_reduce = problem.collective == Collective::kAllReduce;
  if (problem.in_place && (is_all_reduce || problem.collective == Collective::kAllToAll)) {
    return "in place, data that a peer still has to send would be overwritten";
  }
  return "";
}

std::string CopySizeRefusal(const Problem& problem) {
  const bool is_all_reduce = problem.collective == Collective::kAllReduce;
  const uint64_t bytes_min = is_all_reduce ? kSegmentedBytesMin : kCopyBytesMin;
  if (border::ProblemBytes(problem) >= bytes_min) return "";
  return fmt::format("its copies cost time of their own; not offered below {} bytes", bytes_min);
}

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
