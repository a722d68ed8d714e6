// Buffers with guard bytes around them, and data of any size that repeats.
#ifndef COTUNE_CORE_BENCHMARK_GUARDED_BUFFER_H_
#define COTUNE_CORE_BENCHMARK_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/device.h"
#include "core/base/status.h"
#include "core/benchmark/operands.h"

namespace cotune {

// In front of and behind the payload of a buffer; keeps it aligned to 256 bytes.
inline constexpr uint64_t kGuardBytes = 256;

// The payload, between the guards, of bytes that were read back.
std::span<std::byte> Payload(std::vector<std::byte>& bytes);
bool GuardsIntact(std::span<const std::byte> bytes);

// The guards alone, for a payload that is written in whole.
Status PutGuards(Device& device, DeviceBuffer& buffer);

// Guards around a payload that no right answer contains: NaN for floats, -1 and 255 for integers.
Status PoisonBetweenGuards(Device& device, DeviceBuffer& buffer);

// Writes a block into the payload, from the offset on. Its front is made here and then copied on
// the device behind itself, so that data of any size is made as fast as the device can write it.
Status PutBlock(Device& device, DeviceBuffer& buffer, uint64_t payload_offset,
                const OperandBlock& block);
Status PutBlocks(Device& device, DeviceBuffer& buffer, uint64_t payload_offset,
                 std::span<const OperandBlock> blocks);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_GUARDED_BUFFER_H_
