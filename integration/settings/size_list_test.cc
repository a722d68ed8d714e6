#include "integration/settings/size_list.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace cotune {
namespace {

using Sizes = std::vector<uint64_t>;

TEST(SizeListTest, ReadsSingleSizes) {
  EXPECT_EQ(ParseSizeBytes("0").value(), 0u);
  EXPECT_EQ(ParseSizeBytes("100").value(), 100u);
  EXPECT_EQ(ParseSizeBytes("1K").value(), 1024u);
  EXPECT_EQ(ParseSizeBytes("3m").value(), 3u * 1024 * 1024);
  EXPECT_EQ(ParseSizeBytes("2G").value(), uint64_t{2} << 30);
  EXPECT_EQ(ParseSizeBytes("1T").value(), uint64_t{1} << 40);
}

TEST(SizeListTest, ReadsRangesListsAndUnions) {
  EXPECT_EQ(ParseSizes("1K:16K:x2").value(), (Sizes{1024, 2048, 4096, 8192, 16384}));
  EXPECT_EQ(ParseSizes("1K:16K").value(), (Sizes{1024, 2048, 4096, 8192, 16384}));
  EXPECT_EQ(ParseSizes("1K:20K:x4").value(), (Sizes{1024, 4096, 16384}));
  EXPECT_EQ(ParseSizes("1K:10K:+4K").value(), (Sizes{1024, 5120, 9216}));
  EXPECT_EQ(ParseSizes("0:8:+4").value(), (Sizes{0, 4, 8}));
  EXPECT_EQ(ParseSizes("1K,3M,100").value(), (Sizes{100, 1024, 3 << 20}));
  EXPECT_EQ(ParseSizes("1K:4K:x2,4K:6K:+1K,2K").value(), (Sizes{1024, 2048, 4096, 5120, 6144}));
  EXPECT_EQ(ParseSizes("5:5:x2").value(), (Sizes{5}));
}

TEST(SizeListTest, PointsAtThePlaceThatIsWrong) {
  struct Case {
    const char* text;
    size_t character;
    const char* cause;
  };
  const Case cases[] = {
      {"", 1, "a number is missing"},
      {"K", 1, "unexpected 'K'"},
      {"1Q", 2, "unknown suffix 'Q'; known: K, M, G, T"},
      {"1K:4Q:x2", 5, "unknown suffix 'Q'; known: K, M, G, T"},
      {"1K:4M:y2", 7, "a range's step begins with x (a factor) or + (a number)"},
      {"1K:4M:", 7, "a range's step begins with x (a factor) or + (a number)"},
      {"1K:4M:x", 8, "a number is missing"},
      {"1K:4M:x1", 8, "a factor is 2 or more"},
      {"1K:4M:+0", 8, "a step is 1 or more"},
      {"4M:1K:x2", 4, "the range ends before it begins"},
      {"0:4:x2", 1, "a range with a factor cannot begin at 0"},
      {"1K,,2K", 4, "unexpected ','"},
      {"1K,", 4, "a number is missing"},
      {"1K 2K", 3, "unexpected ' '"},
      {"-1", 1, "unexpected '-'"},
      {"1KiB", 3, "unexpected 'i'"},
      {"8,2T", 3, "the largest size is 1T"},
      {"99999999999999999999", 1, "the largest size is 1T"},
      {"5,1:1M:+1", 3, "this makes more than 4096 sizes"},
      {"1K:4K:x2:x2", 9, "unexpected ':'"},
  };
  for (const Case& expected : cases) {
    const Result<Sizes> sizes = ParseSizes(expected.text);
    ASSERT_FALSE(sizes.has_value()) << expected.text;
    EXPECT_EQ(sizes.error().code, ErrorCode::kUsage);
    EXPECT_EQ(sizes.error().where, "character " + std::to_string(expected.character))
        << expected.text;
    EXPECT_EQ(sizes.error().cause, expected.cause) << expected.text;
    // An error is one line, also as JSON.
    EXPECT_EQ(sizes.error().next_step, "write for example 64K, 1K:16M:x2, 1K:64K:+4K or 1K,3M,100");
  }
}

TEST(SizeListTest, HoldsAsManySizesAsTheCapAllows) {
  EXPECT_EQ(ParseSizes("1:4096:+1").value().size(), 4096u);
  EXPECT_FALSE(ParseSizes("1:4097:+1").has_value());
}

TEST(SizeListTest, OneSizeIsNotAList) {
  EXPECT_EQ(ParseSizeBytes("1K,2K").error().where, "character 3");
}

TEST(SizeListTest, FormatsExactly) {
  EXPECT_EQ(FormatSizeBytes(0), "0");
  EXPECT_EQ(FormatSizeBytes(1023), "1023");
  EXPECT_EQ(FormatSizeBytes(1536), "1536");
  EXPECT_EQ(FormatSizeBytes(3 << 20), "3M");
  EXPECT_EQ(FormatSizeBytes(uint64_t{1} << 40), "1T");
  EXPECT_EQ(FormatSizes({1024, 2048, 4096, 5000, 6000, 12000}), "1K:4K:x2,5000,6000,12000");
  EXPECT_EQ(FormatSizes({}), "");
}

// Against a reading of the grammar by steps of one byte at a time.
TEST(SizeListTest, RandomUnionsHoldExactlyTheirMembers) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::set<uint64_t> expected;
    std::string text;
    const int parts = 1 + static_cast<int>(random() % 4);
    for (int part = 0; part < parts; ++part) {
      const uint64_t first = 1 + random() % 5000;
      const uint64_t last = first + random() % 20000;
      const uint64_t step = 2 + random() % 900;
      const bool is_factor = random() % 2 == 0;
      const bool is_kib = random() % 2 == 0;
      const uint64_t unit = is_kib ? 1024 : 1;
      text += (part > 0 ? "," : "") + std::to_string(first) + (is_kib ? "K" : "") + ":" +
              std::to_string(last) + (is_kib ? "k" : "") + (is_factor ? ":x" : ":+") +
              std::to_string(step) + (is_kib && !is_factor ? "K" : "");
      uint64_t next = first;
      for (uint64_t size = first; size <= last; ++size) {
        if (size != next) continue;
        expected.insert(size * unit);
        next = is_factor ? next * step : next + step;
      }
    }
    const Result<Sizes> sizes = ParseSizes(text);
    if (!sizes.has_value()) {
      EXPECT_EQ(sizes.error().cause, "this makes more than 4096 sizes") << text;
      continue;
    }
    EXPECT_EQ(*sizes, Sizes(expected.begin(), expected.end())) << text;
    EXPECT_EQ(ParseSizes(FormatSizes(*sizes)).value(), *sizes) << FormatSizes(*sizes);
  }
}

TEST(SizeListTest, NoTextCrashesOrBreaksTheCaps) {
  std::mt19937 random(13);
  constexpr std::string_view kLetters = "0123456789KMGTkx:+,- Q";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t length = random() % 12; length > 0; --length) {
      text += kLetters[random() % kLetters.size()];
    }
    const Result<Sizes> sizes = ParseSizes(text);
    if (!sizes.has_value()) continue;
    ASSERT_FALSE(sizes->empty());
    ASSERT_LE(sizes->size(), kSizesMax);
    ASSERT_LE(sizes->back(), kSizeBytesMax);
    for (size_t i = 1; i < sizes->size(); ++i) ASSERT_LT((*sizes)[i - 1], (*sizes)[i]) << text;
  }
}

}  // namespace
}  // namespace cotune
