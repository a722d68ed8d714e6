// The buffers of one call on this rank: guards around them, poison in them, at any offset.
#ifndef COTUNE_TESTS_GPU_CALL_BUFFERS_H_
#define COTUNE_TESTS_GPU_CALL_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/problem/problem.h"

namespace cotune::gputest {

// In elements, from an address that is a multiple of 256 bytes.
struct Placement {
  uint64_t send_offset = 0;
  uint64_t recv_offset = 0;  // out of place only
};

// One thread.
class CallBuffers {
 public:
  // symmetric: the region that they are cut from, nullptr for plain ones. Device and region outlive
  // them. kEnvironment when there is no memory left.
  static Result<std::unique_ptr<CallBuffers>> Allocate(Device& device, const Problem& problem,
                                                       int rank, const Placement& placement,
                                                       SymmetricRegion* symmetric = nullptr);

  const void* send() const { return send_at_; }
  void* recv() const { return recv_at_; }

  // Writes what is sent, and into every byte that is to be received one that is wrong.
  Status Fill(std::span<const std::byte> sent, std::span<const std::byte> right);
  // Gives the received data. kWrongResult when a byte around a buffer or, out of place, of the send
  // buffer has changed.
  Result<std::vector<std::byte>> Read();

 private:
  CallBuffers(Device& device, const Problem& problem, int rank)
      : device_(device), problem_(problem), rank_(rank) {}
  Status Check(DeviceBuffer& buffer, const std::vector<std::byte>& written, uint64_t begin,
               uint64_t end, std::vector<std::byte>& seen);

  Device& device_;
  const Problem problem_;
  const int rank_;
  std::unique_ptr<DeviceBuffer> send_;  // in place: both
  std::unique_ptr<DeviceBuffer> recv_;
  uint64_t send_begin_ = 0;  // bytes from the start of send_
  uint64_t recv_begin_ = 0;  // from the start of recv_, in place of send_
  std::byte* send_at_ = nullptr;
  std::byte* recv_at_ = nullptr;
  std::vector<std::byte> send_image_;  // as Fill wrote it
  std::vector<std::byte> recv_image_;
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_CALL_BUFFERS_H_
