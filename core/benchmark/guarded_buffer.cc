#include "core/benchmark/guarded_buffer.h"

#include <algorithm>

namespace cotune {
namespace {

constexpr std::byte kGuard{0x5C};
constexpr std::byte kPoison{0xFF};
// The beginning of a block is written by the host: at most so many of its periods, and no more than
// one beyond so many bytes. A power of two, so that it ends at whole lines of memory.
constexpr uint64_t kFrontPeriods = 128;
constexpr uint64_t kFrontBytes = 1 << 20;

uint64_t FrontBytes(uint64_t period_bytes) {
  uint64_t periods = kFrontPeriods;
  while (periods > 1 && periods * period_bytes > kFrontBytes) periods /= 2;
  return periods * period_bytes;
}

}  // namespace

std::span<std::byte> Payload(std::vector<std::byte>& bytes) {
  return std::span(bytes).subspan(kGuardBytes, bytes.size() - 2 * kGuardBytes);
}

bool GuardsIntact(std::span<const std::byte> bytes) {
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  const auto front = bytes.first(kGuardBytes);
  const auto back = bytes.last(kGuardBytes);
  return std::all_of(front.begin(), front.end(), is_guard) &&
         std::all_of(back.begin(), back.end(), is_guard);
}

Status PutGuards(Device& device, DeviceBuffer& buffer) {
  COTUNE_RETURN_IF_ERROR(device.Fill(buffer, 0, kGuardBytes, kGuard));
  return device.Fill(buffer, buffer.bytes() - kGuardBytes, kGuardBytes, kGuard);
}

Status PoisonBetweenGuards(Device& device, DeviceBuffer& buffer) {
  COTUNE_RETURN_IF_ERROR(PutGuards(device, buffer));
  return device.Fill(buffer, kGuardBytes, buffer.bytes() - 2 * kGuardBytes, kPoison);
}

Status PutBlock(Device& device, DeviceBuffer& buffer, uint64_t payload_offset,
                const OperandBlock& block) {
  if (block.bytes == 0) return {};
  std::vector<std::byte> front(std::min(block.bytes, FrontBytes(block.period.size())));
  FillFront(block, front);
  const uint64_t begin = kGuardBytes + payload_offset + block.begin_bytes;
  Status put = device.Write(*device.Part(buffer, begin, front.size()), front);
  for (uint64_t done = front.size(); put && done < block.bytes;) {
    const uint64_t bytes = std::min(done, block.bytes - done);
    put =
        device.Copy(*device.Part(buffer, begin + done, bytes), *device.Part(buffer, begin, bytes));
    done += bytes;
  }
  return put;
}

Status PutBlocks(Device& device, DeviceBuffer& buffer, uint64_t payload_offset,
                 std::span<const OperandBlock> blocks) {
  for (const OperandBlock& block : blocks) {
    if (Status put = PutBlock(device, buffer, payload_offset, block); !put) return put;
  }
  return {};
}

}  // namespace cotune
