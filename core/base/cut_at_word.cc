#include "core/base/cut_at_word.h"

#include <string_view>

#include "core/base/check.h"

namespace cotune {
namespace {

constexpr std::string_view kEllipsis = "...";
constexpr std::string_view kSpaces = " \t\n";
// The characters after which a text cannot end, because something follows them.
constexpr std::string_view kOpen = " \t\n,;:(";

// Bytes that follow the first one of a UTF-8 character.
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string CutAtWord(std::string text, size_t bytes_max) {
  COTUNE_CHECK(bytes_max >= kEllipsis.size(), "a cut text has an ellipsis");
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max - kEllipsis.size();
  // The byte at `end` is the first one that is dropped: a space there means that a word ends.
  const size_t space = text.find_last_of(kSpaces, end);
  if (space != std::string::npos && space >= end / 2) {
    end = text.find_last_not_of(kOpen, space) + 1;
  } else {
    while (end > 0 && IsContinuation(text[end])) --end;
  }
  text.resize(end);
  text += kEllipsis;
  return text;
}

}  // namespace cotune
