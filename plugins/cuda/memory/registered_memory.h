// Memory that all ranks of a group have registered, so that kernels use it where it lies.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_REGISTERED_MEMORY_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_REGISTERED_MEMORY_H_

#include <array>
#include <cstdint>
#include <map>

#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// One address on every rank of the group, as mapped in this process.
using AddressOnRanks = std::array<unsigned char*, kRanksMax>;

// A table from ranges of this rank's memory to the same ranges of its peers. Ranks use a range
// alike: a buffer lies at the same distance from the range's beginning on all of them, as it does
// where every rank allocates and cuts up the same sizes. As the group: one thread at a time.
class RegisteredMemory {
 public:
  // Whether Add would take the range that begins here.
  sdk::Result<void> Check(const void* begin, uint64_t bytes) const;
  // begin: of the range on each rank, on `rank` in its own memory. COTUNE_INVALID_ARGUMENT when a
  // range overlaps it here that is known already.
  sdk::Result<void> Add(const AddressOnRanks& begin, int rank, uint64_t bytes);
  // The range that begins here; none is fine. No launch that uses it may be on its way or captured.
  void Remove(const void* begin);

  bool is_empty() const { return ranges_.empty(); }
  // Returns the addresses on all ranks of `bytes` from `data` on; [hot]. COTUNE_INVALID_ARGUMENT
  // when they are not all in one range.
  sdk::Result<AddressOnRanks> Find(const void* data, uint64_t bytes) const;

 private:
  struct Range {
    AddressOnRanks begin;
    uint64_t bytes;
  };
  std::map<uintptr_t, Range> ranges_;  // by where they begin here
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_REGISTERED_MEMORY_H_
