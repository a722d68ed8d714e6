// Lists what copy engines move when no kernel does: the copies of a collective on registered
// buffers.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_COPY_LIST_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_COPY_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// Into the receive buffer of this rank. Copy engines only read from peers: a copy runs even when
// the barrier in front of it has given up, and must not write into buffers of a rank that has not
// come to the call.
struct BufferCopy {
  int from_rank = 0;
  bool is_from_recv = false;  // of that rank's receive buffer, else of its send buffer
  uint64_t from_offset_bytes = 0;
  uint64_t to_offset_bytes = 0;
  uint64_t bytes = 0;  // above 0

  bool operator==(const BufferCopy&) const = default;
};

// One phase of a rank, in the order of its members.
struct CopyPhase {
  // From this rank to itself. A kernel copies it, since copy engines that do both are slower
  // between GPUs. It runs beside the copies of earlier phases.
  std::optional<BufferCopy> own;
  // True: the copies of all earlier phases end before the wait. False: they may run beside it.
  bool ends_earlier_copies = false;
  // Here all ranks wait for each other.
  //
  // These are done one after the other. Peers come in the order rank + 1, rank + 2, ..., so that
  // every link carries one copy at a time.
  std::vector<BufferCopy> copies;
};

// The copies of one rank.
struct CopyList {
  // Every rank has as many. Copies of different phases may be done at the same time.
  std::vector<CopyPhase> phases;
  // The same as `own` of a phase, behind the last wait of a phase. Then all copies end, and all
  // ranks wait for each other once more.
  std::optional<BufferCopy> last_own;
};

// The problem has copies and does not reduce, and it is not all_to_all in place. Pure.
CopyList CopiesOf(const sdk::Problem& problem, int rank);

// The copies of one rank for a segment of all_reduce (kernels/kernel_abi.h), not in place. The
// order of all, by rank, in which only "beside" is at the same time:
//   all ranks wait for each other
//   scatter of segment 0
//   for each segment: all ranks wait for each other, then its blocks are added up, and all wait
//     again; beside it the scatter of the next segment, or the gather of the first but one
//   the gathers that are left; all ranks wait for each other
// So, once they have begun, copies wait for an adding up only where that takes longer than the
// copies beside it.
struct SegmentCopies {
  // The addends of this rank's sums, from each peer, into the block that has the peer's number.
  std::vector<BufferCopy> scatter;
  // The sums of each peer.
  std::vector<BufferCopy> gather;
};

SegmentCopies SegmentCopiesOf(const sdk::Problem& problem, int rank, int segment);

// A rough price in microseconds. Pure.
double CopyCostUs(const sdk::Problem& problem);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_COPY_LIST_H_
