#include "plugins/host/tagged_line.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cotune::host {
namespace {

TEST(TaggedLineTest, TagsOfACallTellItsIterationsApart) {
  for (const uint32_t digest : {0u, 1u, 0xdeadbeefu}) {
    std::set<uint64_t> tags = {0};  // of lines that nobody has written
    for (const uint64_t iteration : {uint64_t{0}, uint64_t{1}, uint64_t{UINT32_MAX} - 1,
                                     uint64_t{UINT32_MAX}, uint64_t{1} << 32, uint64_t{1} << 40}) {
      EXPECT_TRUE(tags.insert(LineTag(iteration, digest)).second) << iteration;
    }
  }
}

TEST(TaggedLineTest, TagsOfAnIterationTellCallsApart) {
  for (const uint64_t iteration : {uint64_t{0}, uint64_t{1} << 32}) {
    EXPECT_NE(LineTag(iteration, 7), LineTag(iteration, 8));
    EXPECT_NE(LineTag(iteration, 0), LineTag(iteration, 0x80000000u));
  }
}

TEST(TaggedLineTest, DataComesAsItWasPutAndLinesAreTakenInOrder) {
  for (const uint64_t bytes : {0u, 1u, 55u, 56u, 57u, 112u, 1000u}) {
    std::vector<TaggedLine> lines(LinesOf(bytes) + 1);
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + 1);
    constexpr uint64_t kTag = 42;
    PutLines(data.data(), bytes, kTag, lines.data());
    EXPECT_EQ(lines.back().tag.load(), 0u) << "written beyond the data";
    std::vector<std::byte> taken(bytes);
    EXPECT_EQ(TakeLines(lines.data(), 0, bytes, kTag + 1, taken.data()), 0u);
    if (bytes > kLinePayloadBytes) {  // the second line is another's: only the first is taken
      lines[1].tag.store(kTag + 1);
      EXPECT_EQ(TakeLines(lines.data(), 0, bytes, kTag, taken.data()), 1u);
      lines[1].tag.store(kTag);
      EXPECT_EQ(TakeLines(lines.data(), 1, bytes, kTag, taken.data()), LinesOf(bytes));
    } else {
      EXPECT_EQ(TakeLines(lines.data(), 0, bytes, kTag, taken.data()), LinesOf(bytes));
    }
    EXPECT_EQ(taken, data);
  }
}

}  // namespace
}  // namespace cotune::host
