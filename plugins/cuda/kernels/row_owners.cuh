// Regions that reduce rows, of which each rank owns a share: it adds up the rows of its share, and
// sends what it has made of them to all ranks.
#pragma once

#include "row_region.cuh"

namespace cotune::cuda {

// Rows of the same number in the shares of all owners.
struct OwnedRows {
  unsigned int share;
  unsigned int count;  // all rows of the value
  unsigned int number;

  __device__ __forceinline__ RowPlace Of(int owner) const {
    const unsigned int row = static_cast<unsigned int>(owner) * share + number;
    return {row, number < share && row < count};
  }
};

// Sends the leaves of this rank to the owners of the rows. All loads are in flight at once.
template <bool kIsAligned>
__device__ __forceinline__ void SendToOwners(const KernelArguments& a, const Launch& launch,
                                             const RowSlots& slots, const OwnedRows& owned,
                                             const SourceArguments& source, bool is_open) {
  RowPacks packs[kPeers];
#pragma unroll
  for (int hop = 0; hop < kPeers; ++hop) {
    LoadSourceOfRow<kIsAligned>(source, owned.Of(PeerAfter(a.rank, hop)), packs[hop]);
  }
#pragma unroll
  for (int hop = 0; hop < kPeers; ++hop) {
    const int peer = PeerAfter(a.rank, hop);
    if (is_open) SendRow(launch.Scratch(peer), slots, a.rank, owned.Of(peer), packs[hop]);
  }
}

}  // namespace cotune::cuda
