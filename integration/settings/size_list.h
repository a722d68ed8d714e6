// Sizes as a user writes them: "64K", "1K:16M:x2", "1K:64K:+4K", and lists of these.
#ifndef COTUNE_INTEGRATION_SETTINGS_SIZE_LIST_H_
#define COTUNE_INTEGRATION_SETTINGS_SIZE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace cotune {

inline constexpr size_t kSizesMax = 4096;
inline constexpr uint64_t kSizeBytesMax = uint64_t{1} << 40;

// Grammar, without blanks; K, M, G, T are powers of 1024:
//   sizes := part { "," part }
//   part  := size | size ":" size | size ":" size ":x" factor | size ":" size ":+" size
//   size  := digits [ K | M | G | T ]
// FIRST:LAST alone means :x2. A range holds FIRST and every step up to and including LAST; a factor
// is 2 or more, a step 1 or more, and the first of a range with a factor is not 0. The answer is
// ascending and without doubles, at most kSizesMax sizes of at most kSizeBytesMax. kUsage names
// the character.
Result<std::vector<uint64_t>> ParseSizes(std::string_view text);

// One size. kUsage as above.
Result<uint64_t> ParseSizeBytes(std::string_view text);

// The shortest exact form that ParseSizeBytes reads back: "1K", "3M", "100".
std::string FormatSizeBytes(uint64_t bytes);

// Sizes that ParseSizes reads back, with ranges of a constant factor 2 written as such: "1K:4M:x2".
std::string FormatSizes(const std::vector<uint64_t>& sizes_bytes);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_SIZE_LIST_H_
