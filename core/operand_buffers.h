// The buffers of one cell on this rank, with guard bytes around them.
#ifndef COTUNE_CORE_OPERAND_BUFFERS_H_
#define COTUNE_CORE_OPERAND_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/problem.h"
#include "core/symmetric_region.h"

namespace cotune {

// What a correctness run left in the buffers.
struct OperandCheck {
  uint64_t wrong_elements = 0;  // of the receive buffer
  bool wrote_outside = false;   // guard bytes in front of or behind a buffer changed
  bool changed_send = false;    // out of place only
};

// In place: one allocation holds both. What the buffers begin with, and what they must hold after,
// is made once for each of some kinds of data and stays on the device, which compares it there. Not
// thread-safe.
class OperandBuffers {
 public:
  // Backends whose scratch has two halves find data of the call before the last in it.
  static constexpr uint32_t kDataKinds = 3;

  // symmetric: what the operands are cut from, nullptr for plain ones. kEnvironment: no memory.
  static Result<std::unique_ptr<OperandBuffers>> Allocate(Device& device, const Problem& problem,
                                                          int rank,
                                                          SymmetricRegion* symmetric = nullptr);
  // Of the region that is enough for the operands of a symmetric problem.
  static uint64_t RegionBytes(const Problem& problem);

  // Bytes of the device's memory that it takes in all, guards included.
  static uint64_t AllocatedBytes(const Problem& problem);
  // Bytes of host memory beside those, while data is made or differences are counted.
  static uint64_t StagingBytes(const Problem& problem);

  const void* send() const { return send_; }
  void* recv() const { return recv_; }
  // Poisons the receive buffer, fills the send buffer and restores the guards. The data is of kind
  // salt % kDataKinds: with salts one after the other, what the last two calls left behind is
  // wrong.
  Status Fill(uint32_t salt);
  Result<OperandCheck> Check(uint32_t salt);

 private:
  // Of one kind of data, each as a whole allocation with its guards.
  struct Image {
    std::unique_ptr<DeviceBuffer> first;   // before a call
    std::unique_ptr<DeviceBuffer> result;  // after it: of second_, or of first_ in place
  };

  OperandBuffers(Device& device, const Problem& problem, int rank)
      : device_(device), problem_(problem), rank_(rank) {}
  uint64_t SendOffset() const;  // of the send buffer in its allocation's payload
  uint64_t RecvOffset() const;
  Result<Image> MakeImage(uint32_t kind);
  Result<std::unique_ptr<DeviceBuffer>> Put(const std::vector<std::byte>& bytes);
  // Byte by byte on the host: what is wrong, or that it is right within the tolerance.
  Result<OperandCheck> CountDifferences(uint32_t kind, Image& image);

  Device& device_;
  Problem problem_;
  int rank_;
  std::unique_ptr<DeviceBuffer> first_;   // send, or both
  std::unique_ptr<DeviceBuffer> second_;  // recv when out of place
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::array<Image, kDataKinds> images_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_OPERAND_BUFFERS_H_
