#include "plugins/sdk/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace cotune::sdk {
namespace {

uint64_t StartTicksOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  ProcessState state;
  return ParseProcessStat(line, state) ? state.start_ticks : 0;
}

TEST(ParseProcessStatTest, ReadsStateAndStartTime) {
  ProcessState state;
  ASSERT_TRUE(ParseProcessStat(
      "42 (a b) c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 98765 20 21", state));
  EXPECT_EQ(state.state, 'R');
  EXPECT_EQ(state.start_ticks, 98765u);
}

TEST(ParseProcessStatTest, RefusesOtherText) {
  ProcessState state;
  for (const char* line : {"", "42", "42 (name", "42 (name)", "42 (name) ", "42 (name) R 1 2 3",
                           "42 (n) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"}) {
    EXPECT_FALSE(ParseProcessStat(line, state)) << line;
  }
}

TEST(IsAliveTest, KnowsItself) {
  const ProcessIdentity self = OwnIdentity();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_GT(self.start_ticks, 0u);
  EXPECT_TRUE(IsAlive(self));
}

TEST(IsStoppedTest, SeesSignalsThatStopAndLetGoOn) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    raise(SIGSTOP);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ProcessIdentity identity{.pid = child, .start_ticks = 0};
  EXPECT_FALSE(IsStopped(identity)) << "another process with this number";
  identity.start_ticks = StartTicksOf(child);
  EXPECT_TRUE(IsStopped(identity));
  EXPECT_FALSE(IsStopped(OwnIdentity()));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(IsStopped(identity));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(IsStopped(identity));
}

TEST(IsAliveTest, AnotherProcessWithTheSameNumberIsNotIt) {
  ProcessIdentity other = OwnIdentity();
  other.start_ticks -= 1;
  EXPECT_FALSE(IsAlive(other));
}

TEST(IsAliveTest, StoppedIsAliveAndEndedIsNot) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(IsAlive({child, 0}));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(IsAlive({child, 0})) << "nobody has collected it yet";
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(IsAlive({child, 0}));
}

}  // namespace
}  // namespace cotune::sdk
