#include "core/base/cut_at_word.h"

#include <string>

#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(CutAtWordTest, ATextThatFitsStaysAsItIs) {
  EXPECT_EQ(CutAtWord("", 3), "");
  EXPECT_EQ(CutAtWord("its kernel", 10), "its kernel");
}

TEST(CutAtWordTest, ALongTextEndsAfterAWholeWord) {
  EXPECT_EQ(CutAtWord("its kernel needs another GPU", 27), "its kernel needs another...");
  EXPECT_EQ(CutAtWord("its kernel needs another GPU", 26), "its kernel needs...");
  EXPECT_EQ(CutAtWord("its kernel needs another GPU", 19), "its kernel needs...");
  EXPECT_EQ(CutAtWord("its kernel needs another GPU", 18), "its kernel...");
}

TEST(CutAtWordTest, NothingStandsOpenBeforeTheEllipsis) {
  EXPECT_EQ(CutAtWord("no memory: ask again for less", 14), "no memory...");
  EXPECT_EQ(CutAtWord("no memory (rank 2 alone) was left", 15), "no memory...");
}

TEST(CutAtWordTest, ALongWordIsCutBetweenItsCharacters) {
  EXPECT_EQ(CutAtWord(std::string(20, 'x'), 10), "xxxxxxx...");
  EXPECT_EQ(CutAtWord("in /a/path/without/a/space", 15), "in /a/path/w...");
  EXPECT_EQ(CutAtWord("\u00e4\u00e4\u00e4\u00e4", 6), "\u00e4...") << "each has two bytes";
}

TEST(CutAtWordTest, NoResultIsLongerThanItsLimit) {
  const std::string text = " a bb, ccc: (dddd) \u00e4\u00e4 eeeee  ";
  for (size_t bytes_max = 3; bytes_max <= text.size(); ++bytes_max) {
    EXPECT_LE(CutAtWord(text, bytes_max).size(), bytes_max);
  }
}

}  // namespace
}  // namespace cotune
