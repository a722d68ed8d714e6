// The buffers of one cell on this rank, with guard bytes around them.
#ifndef COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_
#define COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/operands.h"
#include "core/problem/problem.h"

namespace cotune {

// In place: one allocation holds both. What the buffers begin with, and what they must hold after,
// is made once for each of some kinds of data and stays on the device, which compares it there.
class OperandBuffers final : public CellOperands {
 public:
  // symmetric: what the operands are cut from, nullptr for plain ones. kEnvironment: no memory.
  static Result<std::unique_ptr<OperandBuffers>> Allocate(Device& device, const Problem& problem,
                                                          int rank,
                                                          SymmetricRegion* symmetric = nullptr);
  // The size of a region that is enough for so many copies of a symmetric problem's operands.
  static uint64_t RegionBytes(const Problem& problem, int32_t copies);

  // As in CellOperands, of which these are the case of one send and one receive buffer.
  static uint64_t BytesFor(const Problem& problem, int32_t copies = 1);
  static uint64_t BytesToCount(const Problem& problem);
  // All buffers of one call.
  static uint64_t CallBytes(const Problem& problem);

  int32_t AffordableCopies(int32_t wanted) const override;
  Status AddCopies(int32_t copies) override;
  int32_t copies() const override { return static_cast<int32_t>(copies_.size()); }
  void SetAddresses(LaunchArguments& arguments, int32_t copy) const override {
    arguments.send = send(copy);
    arguments.recv = recv(copy);
  }
  Status Fill(uint32_t salt, int32_t copies = 1) override;
  Status FillForTiming(int32_t copies = 1) override;
  std::vector<std::string> ReplicatedOutputs() const override;
  Result<OperandCheck> Check(uint32_t salt, int32_t copies = 1) override;

  const void* send(int32_t copy = 0) const { return At(copy).send; }
  void* recv(int32_t copy = 0) const { return At(copy).recv; }

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
    uint64_t hash = 0;                     // stands for that of the result
  };

  OperandBuffers(Device& device, const Problem& problem, int rank)
      : device_(device), problem_(problem), rank_(rank) {}
  uint64_t SendOffset() const;  // of the send buffer in its allocation's payload
  uint64_t RecvOffset() const;
  const Operands& At(int32_t copy) const { return copies_[static_cast<size_t>(copy)]; }
  // The one place where buffers of calls come from.
  Result<std::unique_ptr<DeviceBuffer>> AllocateOperand(uint64_t payload_bytes);
  Result<Operands> MakeOperands();
  Status FillCopy(const Operands& copy, DeviceBuffer& first);
  // `first` before a timed call.
  DeviceBuffer& timed_first() { return timed_first_ ? *timed_first_ : *images_[0].first; }
  Result<OperandCheck> CheckCopy(const Operands& copy, uint32_t kind);
  Result<Image> MakeImage(uint32_t kind);
  Result<Image> TryToMakeImage(uint32_t kind);
  Result<std::unique_ptr<DeviceBuffer>> PoisonedBuffer(uint64_t bytes);
  // Byte by byte on the host: what is wrong, or that it is right within the tolerance.
  Result<OperandCheck> CountDifferences(const Operands& copy, uint32_t kind);

  Device& device_;
  Problem problem_;
  int rank_;
  SymmetricRegion* symmetric_ = nullptr;  // what operands are cut from; nullptr: plain ones
  std::vector<Operands> copies_;          // the first one is what checks look at
  std::array<Image, kDataKinds> images_;
  std::unique_ptr<DeviceBuffer> timed_first_;  // nullptr: timed calls have data of the first kind
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_OPERAND_BUFFERS_H_
