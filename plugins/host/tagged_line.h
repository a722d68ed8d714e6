// Cache lines that carry data together with a word that says whose it is: a reader gets both in one
// way between processors, instead of a signal first and the data behind it.
#ifndef COTUNE_PLUGINS_HOST_TAGGED_LINE_H_
#define COTUNE_PLUGINS_HOST_TAGGED_LINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "plugins/host/schedule.h"

namespace cotune::host {

// Lives in memory that processes share; all bytes zero is a valid initial state. One writer.
struct alignas(kCacheLineBytes) TaggedLine {
  std::byte payload[kLinePayloadBytes];
  std::atomic<uint64_t> tag;
};
static_assert(sizeof(TaggedLine) == kCacheLineBytes);

// Different for every iteration of one call, and in one iteration for calls that do not fit
// together. `iteration` is counted without wrap-around: a line may have been written long ago.
constexpr uint64_t LineTag(uint64_t iteration, uint32_t call_digest) {
  const uint64_t number = 2 * iteration + 1;  // odd: lines begin as zeroes
  return ((call_digest ^ (number >> 32)) << 32) | (number & UINT32_MAX);
}

// The size of the piece of `bytes` bytes that line `line` carries.
constexpr uint64_t LineBytes(uint64_t bytes, uint64_t line) {
  const uint64_t rest = bytes - line * kLinePayloadBytes;
  return rest < kLinePayloadBytes ? rest : kLinePayloadBytes;
}

// Nobody reads the lines of an earlier tag any more.
inline void PutLines(const std::byte* data, uint64_t bytes, uint64_t tag, TaggedLine* lines) {
  for (uint64_t line = 0; line < LinesOf(bytes); ++line) {
    std::memcpy(lines[line].payload, data + line * kLinePayloadBytes, LineBytes(bytes, line));
    lines[line].tag.store(tag, std::memory_order_release);
  }
}

// Takes lines from `line` on as far as they have come; how far, LinesOf(bytes) at most.
inline uint64_t TakeLines(const TaggedLine* lines, uint64_t line, uint64_t bytes, uint64_t tag,
                          std::byte* data) {
  for (; line < LinesOf(bytes); ++line) {
    if (lines[line].tag.load(std::memory_order_acquire) != tag) break;
    std::memcpy(data + line * kLinePayloadBytes, lines[line].payload, LineBytes(bytes, line));
  }
  return line;
}

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TAGGED_LINE_H_
