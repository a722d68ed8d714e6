// Scratch memory that all plans of a group have in common.
#ifndef COTUNE_PLUGINS_SDK_SHARED_SCRATCH_H_
#define COTUNE_PLUGINS_SDK_SHARED_SCRATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace cotune::sdk {

// Gives the plans of a group the same memory, because only one call of a group runs at a time. The
// group owns it. Each plan owns a share of a block, which is freed with its last share; a plan
// that ends while others may still write to the block passes its share on to them. Any thread.
//
// A block is not filled: it takes pages of the machine when a call writes to it, so that making a
// plan costs no page fault. Its size is a power of two, there is at most one block of a size, and a
// plan shares one that is at most 16 times as large as it needs. So all blocks together have at
// most four times the bytes of the plan that needs most, and at most 32 times those of the largest
// plan that is left.
class SharedScratch {
 public:
  using Share = std::shared_ptr<std::byte>;

  // Returns at least `bytes` bytes that begin on a cache line, or nullptr if `bytes` is 0. Throws
  // std::bad_alloc.
  Share Take(uint64_t bytes);

 private:
  std::mutex mutex_;
  std::array<std::weak_ptr<std::byte>, 64> blocks_;  // block i has 2^i bytes
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_SHARED_SCRATCH_H_
