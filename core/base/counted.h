#ifndef COTUNE_CORE_BASE_COUNTED_H_
#define COTUNE_CORE_BASE_COUNTED_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cotune {

// A count with its noun, for messages: "1 rank", "4 ranks". Only for nouns whose plural
// takes an s, or that end in "ry": "1 entry", "2 entries".
std::string Counted(int64_t count, std::string_view noun);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_COUNTED_H_
