// Signals and a terminal, as the ranks of a job get them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "integration/spawn.h"
#include "integration/testing/shell_ranks.h"
#include "integration/testing/spawner.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

TEST(SpawnSignals, PassesSignalsOnToEveryRank) {
  SpawnerForTest spawner(Shell(Waiting("trap 'echo caught; exit 42' TERM; "), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 42);
  EXPECT_EQ(Count(spawner.output(), "caught"), 2u) << spawner.output();
}

TEST(SpawnSignals, AnInterruptThatNobodyCatchesIsNoLostRank) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    SpawnerForTest spawner(Shell("ulimit -c 0; " + Waiting(""), 2));
    ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
    kill(spawner.pid(), signal);
    ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
    EXPECT_EQ(spawner.ExitCode(), 130) << signal;
  }
}

// As a shell that is not interactive starts what is in the background.
TEST(SpawnSignals, AnInterruptThatWasIgnoredBeforeEndsTheRanks) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const sighandler_t before = ::signal(signal, SIG_IGN);
    SpawnRequest request = Shell(Waiting(""), 2);
    request.grace_ns = 600 * kSecondNs;
    SpawnerForTest spawner(request);
    ::signal(signal, before);
    ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
    kill(spawner.pid(), signal);
    ASSERT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on after signal " << signal;
    EXPECT_EQ(spawner.ExitCode(), 130) << signal;
  }
}

// The ranks hold the pipe: its end says that all of them are gone.
TEST(SpawnSignals, RanksEndWithTheirParent) {
  SpawnerForTest spawner(Shell(Waiting(""), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGKILL);
  EXPECT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on";
}

TEST(SpawnSignals, SigtermThatRanksIgnoreIsFollowedByKill) {
  SpawnRequest request = Shell(
      InFolder("exec 3<>$fifo; rm $fifo; trap '' TERM; echo ready; while :; do read x <&3; done"),
      2);
  request.grace_ns = kSecondNs / 5;
  SpawnerForTest spawner(request);
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on";
  EXPECT_EQ(spawner.ExitCode(), 130) << "the user has ended it";
}

// The signal comes while the others are given time to see that a rank has failed.
TEST(SpawnSignals, ARankThatFailedBeforeTheSignalDecidesTheExitCode) {
  SpawnRequest request =
      Shell(InFolder("exec 3<>$fifo; rm $fifo; test $COTUNE_RANK = 1 && exit 4; trap '' TERM; "
                     "echo ready; while :; do read x <&3; done"),
            2);
  request.grace_ns = kSecondNs;
  request.on_loss = [](int, bool, const std::string&) {
    if (write(STDOUT_FILENO, "lost", 4) != 4) abort();
  };
  SpawnerForTest spawner(request);
  ASSERT_TRUE(spawner.ReadUntil([](const std::string& output) {
    return Count(output, "ready") == 1 && Count(output, "lost") == 1;
  })) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on";
  EXPECT_EQ(spawner.ExitCode(), 5);
}

// Also where a rank that is stopped is no loss: nobody waits for it after the user has ended the
// job.
TEST(SpawnSignals, ASignalThatEndsTheJobReachesARankThatIsStopped) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    SpawnRequest request =
        Shell(InFolder("ulimit -c 0; exec 3<>$fifo; rm $fifo; echo ready; test $COTUNE_RANK = 0 || "
                       "kill -STOP $$; read x <&3"),
              2);
    request.loses_stopped_ranks = false;
    SpawnerForTest spawner(request);
    ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
    kill(spawner.pid(), signal);
    ASSERT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on after signal " << signal;
    EXPECT_EQ(spawner.ExitCode(), 130) << signal;
  }
}

TEST(SpawnSignals, ARankThatStaysStoppedIsNamedWhileItIsWaitedFor) {
  SpawnRequest request =
      Shell(InFolder("exec 3<>$fifo; rm $fifo; echo ready; test $COTUNE_RANK = 0 || kill -STOP $$; "
                     "read x <&3"),
            2);
  request.grace_ns = 600 * kSecondNs;
  request.stopped_notice_ns = 1;
  SpawnerForTest spawner(request);
  ASSERT_TRUE(spawner.ReadUntil([](const std::string& output) {
    return Count(output,
                 "cotune: waiting for rank 1, which is stopped (SIGSTOP, a debugger), for "
                 "at most 600 s more; `kill -CONT` lets it go on\n") == 1;
  })) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(Count(spawner.output(), "waiting for"), 1u) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 130);
}

// A rank that is a script, whose program runs as its child.
std::string WithChild(const std::string& in_front) {
  return InFolder("exec 3<>$fifo; rm $fifo; " + in_front + "(echo ready; read x <&3) & wait");
}

TEST(SpawnSignals, SignalsReachWhatTheRanksHaveStarted) {
  SpawnerForTest spawner(Shell(WithChild(""), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  EXPECT_TRUE(spawner.ReadToTheEnd()) << "the child of a rank lives on";
  EXPECT_EQ(spawner.ExitCode(), 130);
}

TEST(SpawnSignals, KillingReachesWhatTheRanksHaveStarted) {
  SpawnRequest request = Shell(WithChild("trap '' TERM; "), 2);
  request.grace_ns = kSecondNs / 5;
  SpawnerForTest spawner(request);
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  EXPECT_TRUE(spawner.ReadToTheEnd()) << "the child of a rank lives on";
}

// Nobody reads what rank 1 writes without end, and its parent listens all the same.
TEST(SpawnSignals, ARankThatPrintsWithoutEndKeepsNobodyWaiting) {
  SpawnerForTest spawner(
      Shell(InFolder("exec 3<>$fifo; rm $fifo; test $COTUNE_RANK = 1 && exec yes; echo ready; "
                     "read x <&3"),
            2));
  ASSERT_TRUE(spawner.ReadUntil([](const std::string& output) {
    return Count(output, "ready") > 0 && Count(output, "[rank 1] y") > 0;
  }));
  kill(spawner.pid(), SIGTERM);
  EXPECT_EQ(spawner.ExitCode(), 130);
}

// ---- At a terminal ----

TEST(SpawnAtATerminal, AnInterruptReachesEveryRankOnce) {
  SpawnerForTest spawner(Shell(Waiting("trap 'echo caught; exit 42' INT; "), 2),
                         SpawnerForTest::Output::kTerminal);
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  spawner.Type("\x03");
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 42);
  EXPECT_EQ(Count(spawner.output(), "caught"), 2u) << spawner.output();
}

TEST(SpawnAtATerminal, RankZeroMayReadIt) {
  SpawnerForTest spawner(
      Shell("test $COTUNE_RANK = 0 || exit 0; echo ready; read x; echo read $x", 2),
      SpawnerForTest::Output::kTerminal);
  ASSERT_TRUE(spawner.ReadUntil([](const std::string& output) { return Count(output, "ready"); }));
  spawner.Type("a line\n");
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 0) << spawner.output();
  EXPECT_THAT(spawner.output(), HasSubstr("read a line"));
}

// Rank 0 says that it has the terminal, whose interrupt reaches it alone, and ends by it.
TEST(SpawnAtATerminal, AnInterruptOfRankZeroThatReadsItIsOneOfTheJob) {
  SpawnerForTest spawner(
      Shell(InFolder("exec 3<>$fifo; rm $fifo; if test $COTUNE_RANK = 0; then read x; "
                     "echo has it; exec cat; fi; trap 'echo caught; exit 0' INT; echo ready; "
                     "read x <&3"),
            2),
      SpawnerForTest::Output::kTerminal);
  spawner.Type("a line\n");
  ASSERT_TRUE(spawner.ReadUntil([](const std::string& output) {
    return Count(output, "has it") == 1 && Count(output, "ready") == 1;
  })) << spawner.output();
  spawner.Type("\x03");
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(Count(spawner.output(), "caught"), 1u) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 130);
}

TEST(SpawnAtATerminal, AStoppedJobGoesOn) {
  SpawnRequest request = Shell(
      "test $COTUNE_RANK = 0 || exit 0; while read x; do echo has $x; test $x != end || exit 0; "
      "done",
      2);
  request.grace_ns = 1;  // a rank that counts as stopped would be ended
  SpawnerForTest spawner(request, SpawnerForTest::Output::kTerminal);
  for (const std::string line : {"one", "two", "three"}) {
    spawner.Type(line + "\n");
    ASSERT_TRUE(spawner.ReadUntil([&](const std::string& output) {
      return Count(output, "has " + line) == 1;
    })) << spawner.output();
    spawner.Type("\x1a");
    ASSERT_TRUE(spawner.AwaitStop()) << spawner.output();
    kill(spawner.pid(), SIGCONT);
  }
  spawner.Type("end\n");
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 0) << spawner.output();
  EXPECT_THAT(spawner.output(), HasSubstr("has end"));
}

}  // namespace
}  // namespace cotune
