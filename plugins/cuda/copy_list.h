// What copy engines move when no kernel does: the copies of a collective on registered buffers.
#ifndef COTUNE_PLUGINS_CUDA_COPY_LIST_H_
#define COTUNE_PLUGINS_CUDA_COPY_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/border/problem.h"

namespace cotune::cuda {

// Of this rank, into the receive buffer of any.
struct BufferCopy {
  bool is_from_recv = false;  // of this rank's receive buffer, else of its send buffer
  uint64_t from_offset_bytes = 0;
  int to_rank = 0;
  uint64_t to_offset_bytes = 0;
  uint64_t bytes = 0;  // above 0

  bool operator==(const BufferCopy&) const = default;
};

// Whether there are copies for this collective at all.
constexpr bool HasCopies(border::Collective collective) {
  return collective == border::Collective::kAllGather ||
         collective == border::Collective::kAllToAll ||
         collective == border::Collective::kBroadcast;
}

// The copies of `rank`, one after the other in phases: before the first one, between them and after
// the last one all ranks wait for each other. As many phases on every rank. Peers come in the order
// rank + 1, rank + 2, ..., so that every link carries one copy at a time; what a rank copies for
// itself comes last. Of a problem that has copies, not all_to_all in place. Pure.
std::vector<std::vector<BufferCopy>> CopyPhases(const border::Problem& problem, int rank);

// Why the problem is not done by copy engines; "": it can be. Pure.
std::string CopyRefusal(const border::Problem& problem);

// A rough price in microseconds. Pure.
double CopyCostUs(const border::Problem& problem);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COPY_LIST_H_
