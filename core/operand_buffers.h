// The buffers of one cell on this rank, with guard bytes around them.
#ifndef COTUNE_CORE_OPERAND_BUFFERS_H_
#define COTUNE_CORE_OPERAND_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/problem.h"

namespace cotune {

// What a correctness run left in the buffers.
struct OperandCheck {
  uint64_t wrong_elements = 0;  // of the receive buffer
  bool wrote_outside = false;   // guard bytes in front of or behind a buffer changed
  bool changed_send = false;    // out of place only
};

// In place: one allocation holds both. Not thread-safe.
class OperandBuffers {
 public:
  static Result<std::unique_ptr<OperandBuffers>> Allocate(Device& device, const Problem& problem,
                                                          int rank);

  // Bytes of the device's memory that Allocate takes, guards included.
  static uint64_t AllocatedBytes(const Problem& problem);
  // Bytes of host memory beside those: what is compared with.
  static uint64_t StagingBytes(const Problem& problem);

  const void* send() const { return send_; }
  void* recv() const { return recv_; }
  // Poisons the receive buffer, fills the send buffer and restores the guards.
  Status Fill(uint32_t salt);
  Result<OperandCheck> Check(uint32_t salt);

 private:
  OperandBuffers(Device& device, const Problem& problem, int rank)
      : device_(device), problem_(problem), rank_(rank) {}
  uint64_t SendOffset() const;  // of the send buffer in its allocation's payload
  uint64_t RecvOffset() const;

  Device& device_;
  Problem problem_;
  int rank_;
  std::unique_ptr<DeviceBuffer> first_;   // send, or both
  std::unique_ptr<DeviceBuffer> second_;  // recv when out of place
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::vector<std::byte> staging_;  // what Fill wrote into first_, guards included
  std::vector<std::byte> seen_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_OPERAND_BUFFERS_H_
