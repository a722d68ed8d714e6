#include "plugins/sdk/process_identity.h"

#include <gtest/gtest.h>
#include <sched.h>
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

// A process of another PID namespace: this one cannot know whether it lives.
TEST(IsAliveTest, ANumberThatMeansNothingHereIsNoDeath) {
  const ProcessIdentity self = OwnIdentity();
  ASSERT_NE(self.pid_space, 0u);
  ProcessIdentity elsewhere{.pid = 0x3fffffff, .start_ticks = 1, .pid_space = self.pid_space ^ 1};
  EXPECT_FALSE(ShareProcessNumbers(self, elsewhere));
  EXPECT_TRUE(IsAlive(elsewhere));
  elsewhere.pid_space = self.pid_space;
  EXPECT_TRUE(ShareProcessNumbers(self, elsewhere));
  EXPECT_FALSE(IsAlive(elsewhere));
  elsewhere.pid_space = 0;
  EXPECT_TRUE(ShareProcessNumbers(self, elsewhere));
  EXPECT_FALSE(IsAlive(elsewhere));
}

// The first process of a new PID namespace with the old /proc, in which its number is that of
// another process. Gives the number of the line that failed.
int CheckWithForeignProc(const ProcessIdentity& outside) {
  if (ProcIsOwn() || getpid() != 1) return __LINE__;
  const ProcessIdentity self = OwnIdentity();
  if (ShareProcessNumbers(self, outside)) return __LINE__;
  if (!IsAlive(outside) || !IsAlive(self) || IsStopped(self)) return __LINE__;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (waitpid(child, nullptr, 0) != child) return __LINE__;
  return IsAlive({.pid = child, .start_ticks = 0}) ? __LINE__ : 0;
}

TEST(IsAliveTest, WithTheProcOfAnotherNamespaceSignalsTell) {
  constexpr int kImpossible = 255;
  const ProcessIdentity self = OwnIdentity();
  EXPECT_TRUE(ProcIsOwn());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      _exit(kImpossible);
    }
    const pid_t first = fork();
    if (first == 0) _exit(CheckWithForeignProc(self));
    int status = 0;
    _exit(waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 254);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kImpossible) {
    GTEST_SKIP() << "this user may not make a PID namespace here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the line that failed";
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
