// The lines of a job that the console prints at once, and those that it keeps back.
#include "cli/output/console.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/failure_line.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest()
      : log_(open_memstream(&text_, &bytes_)), console_(log_, log_, "tune", OutputFlags{}, false) {}
  ~ConsoleTest() override {
    std::fclose(log_);
    std::free(text_);
  }

  std::string Logged() {
    std::fflush(log_);
    return {text_, bytes_};
  }

  char* text_ = nullptr;
  size_t bytes_ = 0;
  std::FILE* const log_;
  Console console_;
};

TEST_F(ConsoleTest, ALostRankIsKeptBackForAnEndWithoutItsError) {
  EmitFailureLine(console_, ErrorCode::kRankLost, "rank 1 is gone");
  EXPECT_EQ(Logged(), "");
  console_.WarnOfLostRank();
  EXPECT_EQ(Logged(), "cotune: warning: rank 1 is gone\n");
  console_.WarnOfLostRank();
  EXPECT_EQ(Logged(), "cotune: warning: rank 1 is gone\n");
}

TEST_F(ConsoleTest, NoWordsOfALineKeepItBack) {
  EmitLine(console_, Severity::kError, "rank 1 died: it did not come to the rendezvous");
  EmitFailureLine(console_, ErrorCode::kDisagreement, "rank 1 died: its version is another");
  const std::string both =
      "cotune: warning: rank 1 died: it did not come to the rendezvous\n"
      "cotune: warning: rank 1 died: its version is another\n";
  EXPECT_EQ(Logged(), both);
  console_.WarnOfLostRank();
  EXPECT_EQ(Logged(), both);
}

}  // namespace
}  // namespace cotune::cli
