// The buffers of one cell on this rank, with guard bytes around them.
#ifndef COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_
#define COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/benchmark/operands.h"
#include "core/problem/problem.h"

namespace cotune {

// The state of the buffers after a correctness run.
struct OperandCheck {
  uint64_t wrong_elements = 0;  // of the receive buffer
  bool wrote_outside = false;   // guard bytes in front of or behind a buffer changed
  bool changed_send = false;    // out of place only
};

// In place: one allocation holds both. Further copies of both keep timed calls from finding in a
// cache what a program's calls would read from memory. What the buffers begin with, and what they
// must hold after, is made once for each of some kinds of data and stays on the device, which
// compares it there. Not thread-safe.
class OperandBuffers {
 public:
  // Backends whose scratch has two halves find data of the call before the last in it.
  static constexpr uint32_t kDataKinds = 3;

  // symmetric: what the operands are cut from, nullptr for plain ones. kEnvironment: no memory.
  static Result<std::unique_ptr<OperandBuffers>> Allocate(Device& device, const Problem& problem,
                                                          int rank,
                                                          SymmetricRegion* symmetric = nullptr);
  // The size of a region that is enough for so many copies of a symmetric problem's operands.
  static uint64_t RegionBytes(const Problem& problem, int32_t copies);

  // Bytes of the device's memory that it takes in all, guards included.
  static uint64_t AllocatedBytes(const Problem& problem, int32_t copies = 1);
  // Bytes of host memory beside those, while differences are counted.
  static uint64_t StagingBytes(const Problem& problem);

  // How many copies timed calls go round over, the first one included, so that each is out of a
  // cache of so many bytes when its turn comes again: the others are twice the cache, as none
  // forgets the oldest exactly. One where a call's buffers are less than an eighth of the cache, as
  // what a program just wrote is still there then, and where they are twice the cache and more, as
  // they drive themselves out. The same on all ranks.
  static int32_t WantedCopies(const Problem& problem, uint64_t cache_bytes);
  // Returns as many of the wanted copies as take no more than half of what the device has left, or
  // as the symmetric region holds.
  int32_t AffordableCopies(int32_t wanted) const;
  // Until there are so many, with data in them. The same number on all ranks. kEnvironment: no
  // memory.
  Status AddCopies(int32_t copies);

  int32_t copies() const { return static_cast<int32_t>(copies_.size()); }
  const void* send(int32_t copy = 0) const { return At(copy).send; }
  void* recv(int32_t copy = 0) const { return At(copy).recv; }
  // Poisons the receive buffers of the first so many copies, fills their send buffers and restores
  // the guards. The data is of kind salt % kDataKinds: with salts one after the other, what the
  // last two calls left behind is wrong.
  Status Fill(uint32_t salt, int32_t copies = 1);
  // After one call on each of them. The first copy in which something is wrong counts.
  Result<OperandCheck> Check(uint32_t salt, int32_t copies = 1);

 private:
  // The buffers of one call.
  struct Operands {
    std::unique_ptr<DeviceBuffer> first;   // send, or both
    std::unique_ptr<DeviceBuffer> second;  // recv when out of place
    std::byte* send = nullptr;
    std::byte* recv = nullptr;
  };
  // The images of one kind of data, each a whole allocation with its guards.
  struct Image {
    std::unique_ptr<DeviceBuffer> first;   // before a call
    std::unique_ptr<DeviceBuffer> result;  // after it: of `second`, or of `first` in place
  };

  OperandBuffers(Device& device, const Problem& problem, int rank)
      : device_(device), problem_(problem), rank_(rank) {}
  uint64_t SendOffset() const;  // of the send buffer in its allocation's payload
  uint64_t RecvOffset() const;
  const Operands& At(int32_t copy) const { return copies_[static_cast<size_t>(copy)]; }
  // The one place where buffers of calls come from.
  Result<std::unique_ptr<DeviceBuffer>> AllocateOperand(uint64_t payload_bytes);
  Result<Operands> MakeOperands();
  Status FillCopy(const Operands& copy, uint32_t kind);
  Result<OperandCheck> CheckCopy(const Operands& copy, uint32_t kind);
  Result<Image> MakeImage(uint32_t kind);
  Result<Image> TryToMakeImage(uint32_t kind);
  Result<std::unique_ptr<DeviceBuffer>> PoisonedBuffer(uint64_t bytes);
  Status PoisonBetweenGuards(DeviceBuffer& buffer);
  // Into the payload, from the offset on.
  Status PutBlock(DeviceBuffer& buffer, uint64_t payload_offset, const OperandBlock& block);
  Status PutBlocks(DeviceBuffer& buffer, uint64_t payload_offset,
                   const std::vector<OperandBlock>& blocks);
  // Byte by byte on the host: what is wrong, or that it is right within the tolerance.
  Result<OperandCheck> CountDifferences(const Operands& copy, uint32_t kind);

  Device& device_;
  Problem problem_;
  int rank_;
  SymmetricRegion* symmetric_ = nullptr;  // what operands are cut from; nullptr: plain ones
  std::vector<Operands> copies_;          // the first one is what checks look at
  std::array<Image, kDataKinds> images_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_
