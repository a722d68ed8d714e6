#ifndef COTUNE_CORE_BASE_COUNTED_H_
#define COTUNE_CORE_BASE_COUNTED_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cotune {

// A count with its noun, for messages: "1 rank", "4 ranks". Only for nouns whose plural
// takes an s, or that end in "ry": "1 entry", "2 entries".
std::string Counted(int64_t count, std::string_view noun);

// Ascending numbers for messages: "1, 3, 4". More than 8 in a row are a range: "0-299, 301".
std::string NumbersText(const std::vector<int>& numbers);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_COUNTED_H_
