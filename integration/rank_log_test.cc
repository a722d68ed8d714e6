#include "integration/rank_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The lines of a stream that comes in these pieces.
std::vector<std::string> Lines(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto add = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) splitter.Append(piece, add);
  splitter.Finish(add);
  return lines;
}

TEST(LineSplitterTest, LinesEndWithEveryKindOfEnd) {
  EXPECT_THAT(Lines({"a\nb\r\nc\rd"}), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Lines({"\n\na\r\n\r\n"}), ElementsAre("", "", "a", ""));
  EXPECT_THAT(Lines({""}), IsEmpty());
  EXPECT_THAT(Lines({"a\n"}), ElementsAre("a"));
}

TEST(LineSplitterTest, APieceMayEndAnywhere) {
  const std::string all = "first\r\nsecond\rthird\n\nlast";
  for (size_t at = 0; at <= all.size(); ++at) {
    EXPECT_THAT(Lines({all.substr(0, at), all.substr(at)}),
                ElementsAre("first", "second", "third", "", "last"))
        << at;
  }
}

// "\r" in front of each picture.
TEST(LineSplitterTest, EachPictureOfAProgressBarIsALine) {
  EXPECT_THAT(Lines({"\r 0%", "\r 50%", "\r100%\n"}), ElementsAre(" 0%", " 50%", "100%"));
}

TEST(LineSplitterTest, LinesAreBounded) {
  const size_t most = LineSplitter::kLineBytesMax;
  EXPECT_THAT(Lines({std::string(most, 'x')}), ElementsAre(std::string(most, 'x')));
  EXPECT_THAT(Lines({std::string(most, 'x'), "y\n"}), ElementsAre(std::string(most, 'x'), "y"));
  const std::vector<std::string> lines = Lines({std::string(3 * most + 5, 'x')});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3], "xxxxx");
}

// Standard error as a pipe that only the test reads.
class RankLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    ASSERT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
    before_ = dup(STDERR_FILENO);
    ASSERT_GE(dup2(ends_[1], STDERR_FILENO), 0);
  }
  void TearDown() override {
    dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) close(fd);
  }
  std::string ReadAll() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (ssize_t size = 0; (size = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      all.append(buffer.data(), static_cast<size_t>(size));
    }
    return all;
  }

  std::array<int, 2> ends_{};
  int before_ = -1;
};

TEST_F(RankLogTest, PutsTheRankInFront) {
  RankLog log;
  EXPECT_TRUE(log.is_empty());
  log.Add(3, "line");
  log.Add(12, "");
  EXPECT_FALSE(log.is_empty());
  log.Flush();
  EXPECT_TRUE(log.is_empty());
  EXPECT_EQ(ReadAll(), "[rank 3] line\n[rank 12] \n");
}

// The test itself is who does not read: a log that waits never comes back.
TEST_F(RankLogTest, DoesNotWaitForAReaderAndLosesNothing) {
  RankLog log;
  std::string expected;
  for (int i = 0; i < 5000; ++i) {
    const std::string line(i % 97, static_cast<char>('a' + i % 26));
    log.Add(1, line);
    expected += "[rank 1] " + line + "\n";
  }
  std::string read;
  while (!log.is_empty()) {
    log.Flush();
    const std::string some = ReadAll();
    ASSERT_FALSE(some.empty());
    read += some;
  }
  EXPECT_EQ(read, expected);
}

TEST_F(RankLogTest, GivesUpAtTheEndWhenNobodyReads) {
  RankLog log;
  log.Add(1, std::string(1 << 20, 'x'));
  log.FlushAtTheEnd();
  EXPECT_FALSE(log.is_empty());
}

}  // namespace
}  // namespace cotune
