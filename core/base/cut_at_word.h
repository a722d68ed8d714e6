#ifndef COTUNE_CORE_BASE_CUT_AT_WORD_H_
#define COTUNE_CORE_BASE_CUT_AT_WORD_H_

#include <cstddef>
#include <string>

namespace cotune {

// The text if it has at most `bytes_max` bytes. A longer one ends after its last whole word that
// leaves room for "...", which follows it. If the last word takes more than half of the text, as a
// path may, it is cut between two of its UTF-8 characters. `bytes_max` is at least 3.
std::string CutAtWord(std::string text, size_t bytes_max);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_CUT_AT_WORD_H_
