#include "integration/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "integration/testing/shell_ranks.h"
#include "integration/testing/spawner.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

SpawnResult Spawned(const SpawnRequest& request) {
  const auto result = SpawnRanks(request);
  EXPECT_TRUE(result) << result.error().ToText();
  return result ? *result : SpawnResult{};
}

struct Captured {
  SpawnResult result;
  std::string out;
  std::string err;
};

// Standard output and error of the ranks.
Captured RunCaptured(const SpawnRequest& request) {
  Captured captured;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  captured.result = Spawned(request);
  captured.out = ::testing::internal::GetCapturedStdout();
  captured.err = ::testing::internal::GetCapturedStderr();
  return captured;
}

// A library may have started threads that block no signal; which thread gets one is up to the
// kernel.
TEST(SpawnTest, SeesEveryEndWhateverThreadsThereAre) {
  std::promise<void> done;
  const std::shared_future<void> is_done = done.get_future().share();
  std::vector<std::thread> idle;
  for (int i = 0; i < 4; ++i) idle.emplace_back([is_done] { is_done.wait(); });
  for (int run = 0; run < 30; ++run) {
    EXPECT_EQ(Spawned(Shell("exit $COTUNE_RANK", 3)).exit_code, 1);
  }
  done.set_value();
  for (std::thread& thread : idle) thread.join();
}

TEST(SpawnTest, GivesEveryRankItsVariables) {
  const Captured run = RunCaptured(
      Shell("echo $COTUNE_RANK of $COTUNE_WORLD_SIZE, $COTUNE_LOCAL_RANK of $COTUNE_LOCAL_SIZE, "
            "$NCCL_NVLS_ENABLE $TORCH_SYMM_MEM_DISABLE_MULTICAST $NVSHMEM_DISABLE_NVLS; "
            "test -n \"$COTUNE_JOB_ID\"",
            3));
  EXPECT_EQ(run.result.exit_code, 0);
  EXPECT_THAT(run.result.messages, ElementsAre());
  EXPECT_EQ(run.out, "0 of 3, 0 of 3, 0 1 1\n");
  EXPECT_THAT(run.err, HasSubstr("[rank 1] 1 of 3, 1 of 3, 0 1 1\n"));
  EXPECT_THAT(run.err, HasSubstr("[rank 2] 2 of 3, 2 of 3, 0 1 1\n"));
}

TEST(SpawnTest, ReplacesVariablesThatAreThereAlready) {
  setenv("COTUNE_RANK", "9", 1);
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  const Captured run =
      RunCaptured(Shell("env | grep -c -e ^COTUNE_RANK= -e ^NCCL_NVLS_ENABLE=0", 1));
  unsetenv("COTUNE_RANK");
  unsetenv("NCCL_NVLS_ENABLE");
  EXPECT_EQ(run.out, "2\n");
}

TEST(SpawnTest, PassesWholeLinesOnAndTheLastOneToo) {
  const Captured run = RunCaptured(
      Shell("test $COTUNE_RANK = 0 || { printf 'a\\nb'; printf 'c\\n\\nerr' >&2; }", 2));
  EXPECT_EQ(run.err, "[rank 1] a\n[rank 1] bc\n[rank 1] \n[rank 1] err\n");
}

TEST(SpawnTest, GivesTheExitCodeOfTheRankThatFailed) {
  EXPECT_EQ(Spawned(Shell("exit 0", 3)).exit_code, 0);
  EXPECT_EQ(Spawned(Shell("test $COTUNE_RANK != 1 || exit 7", 3)).exit_code, 7);
  EXPECT_EQ(Spawned(Shell("exit $((COTUNE_RANK + 3))", 3)).exit_code, 3);
}

TEST(SpawnTest, NamesARankThatASignalEnded) {
  const SpawnResult result = Spawned(Shell("test $COTUNE_RANK != 2 || kill -9 $$", 3));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(
      result.messages,
      ElementsAre(MatchesRegex("rank 2 \\(pid [0-9]+, sh\\) was ended by SIGKILL \\(Killed\\)")));
}

TEST(SpawnTest, EndsTheOthersAfterTheGrace) {
  SpawnRequest request =
      Shell(InFolder("test $COTUNE_RANK = 1 && exit 4; exec 3<>$fifo; rm $fifo; read x <&3"), 3);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(
      result.messages,
      ElementsAre(MatchesRegex("rank 0 \\(pid [0-9]+, sh\\) did not end in time and was killed"),
                  MatchesRegex("rank 2 \\(pid [0-9]+, sh\\) did not end in time and was killed")));
}

TEST(SpawnTest, NamesARankThatIsStopped) {
  SpawnRequest request = Shell("test $COTUNE_RANK != 1 || kill -STOP $$", 2);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.messages,
              ElementsAre(MatchesRegex("rank 1 \\(pid [0-9]+, sh\\) was stopped and was killed")));
}

// A named pipe that the test keeps open, so that neither end waits for the other.
class FifoForTest {
 public:
  FifoForTest() {
    if (mkfifo(path_.c_str(), 0600) != 0) abort();
    fd_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  }
  FifoForTest(const FifoForTest&) = delete;
  FifoForTest& operator=(const FifoForTest&) = delete;
  ~FifoForTest() {
    close(fd_);
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  void Write(const std::string& text) const {
    if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) abort();
  }

 private:
  const std::string path_ = std::string(getenv("TEST_TMPDIR")) + "/fifo";
  int fd_ = -1;
};

bool IsStopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return stat.find(") T ") != std::string::npos;
}

TEST(SpawnTest, WhereAStopIsNoLossAStoppedRankIsWaitedFor) {
  const FifoForTest words;
  // The parent passes on what rank 1 says. By the second word it has seen all that was before the
  // first one.
  SpawnRequest request =
      Shell("test $COTUNE_RANK = 0 && { echo \"pid $$.\"; kill -STOP $$; exit 0; }; exec 3<'" +
                words.path() + "'; for i in 1 2 3; do read x <&3; echo said $x; done",
            2);
  request.loses_stopped_ranks = false;
  request.grace_ns = 1;
  SpawnerForTest spawner(request);
  const auto has = [](const std::string& part) {
    return [part](const std::string& output) { return output.find(part) != std::string::npos; };
  };
  ASSERT_TRUE(spawner.ReadUntil(has("."))) << spawner.output();
  const pid_t pid = std::stoi(spawner.output().substr(spawner.output().find("pid ") + 4));
  while (!IsStopped(pid) && kill(pid, 0) == 0) usleep(1000);
  for (const std::string word : {"one", "two", "three"}) {
    if (word == "three") kill(pid, SIGCONT);
    words.Write(word + "\n");
    spawner.ReadUntil(has("said " + word));
    ASSERT_THAT(spawner.output(), HasSubstr("said " + word)) << "the job was ended";
  }
  EXPECT_EQ(spawner.ExitCode(), 0);
}

// Stopped and continued is not lost.
TEST(SpawnTest, LetsARankThatIsContinuedGoOn) {
  const SpawnResult result =
      Spawned(Shell("test $COTUNE_RANK != 1 || { (kill -STOP $$; kill -CONT $$) & wait; }", 2));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.messages, ElementsAre());
}

// A rank that is not like the others is told apart, and its last error needs no zero byte.
TEST(SpawnTest, TellsAnErrorOfSeveralRanksOnce) {
  SpawnRequest request = Shell(
      "printf 'all\\0' >/proc/self/fd/$COTUNE_ERROR_PIPE; test $COTUNE_RANK = 1 || "
      "printf 'but one' >/proc/self/fd/$COTUNE_ERROR_PIPE",
      3);
  std::vector<std::pair<std::string, std::vector<int>>> told;
  request.knows_error_pipe = true;
  request.on_error = [&](const std::vector<int>& ranks, const std::string& text) {
    told.emplace_back(text, ranks);
  };
  EXPECT_EQ(Spawned(request).exit_code, 0);
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(std::pair("all", std::vector{0, 1, 2}),
                                                    std::pair("but one", std::vector{0, 2})));
}

TEST(SpawnTest, SaysWhyAProgramCannotBeStarted) {
  SpawnRequest request;
  request.command = {"/no/such/program"};
  ::testing::internal::CaptureStderr();
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("No such file or directory"));
}

TEST(SpawnTest, RefusesNoRanksAndNoProgram) {
  EXPECT_FALSE(SpawnRanks(Shell("exit 0", 0)));
  EXPECT_FALSE(SpawnRanks(SpawnRequest{}));
}

// The first end that was no success, as it is told.
struct Loss {
  int calls = 0;
  int rank = -1;
  bool by_signal = false;
  std::string text;
};

SpawnRequest EndingOthers(const std::string& script, int ranks, Loss& loss) {
  SpawnRequest request = Shell(script, ranks);
  request.ends_others = true;
  request.on_loss = [&loss](int rank, bool by_signal, const std::string& text) {
    loss = {loss.calls + 1, rank, by_signal, text};
  };
  return request;
}

// The others would wait for ever, and the grace is a minute.
const char kWaitForEver[] = "exec 3<>$fifo; rm $fifo; read x <&3";

TEST(SpawnTest, OneBadEndEndsTheOthersAtOnce) {
  Loss loss;
  const SpawnResult result = Spawned(EndingOthers(
      InFolder(std::string("test $COTUNE_RANK = 1 && exit 3; ") + kWaitForEver), 3, loss));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.messages, ElementsAre());
  EXPECT_EQ(loss.calls, 1);
  EXPECT_EQ(loss.rank, 1);
  EXPECT_FALSE(loss.by_signal);
  EXPECT_THAT(loss.text, MatchesRegex("rank 1 \\(pid [0-9]+, sh\\) ended with exit code 3 after "
                                      "[0-9]+\\.[0-9] s"));
}

TEST(SpawnTest, AnEndBySignalEndsTheOthersAtOnce) {
  Loss loss;
  const SpawnResult result = Spawned(EndingOthers(
      InFolder(std::string("test $COTUNE_RANK = 2 && kill -SEGV $$; ") + kWaitForEver), 3, loss));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.messages, ElementsAre());
  EXPECT_TRUE(loss.by_signal);
  EXPECT_THAT(loss.text, MatchesRegex("rank 2 .*was ended by SIGSEGV \\(Segmentation fault\\).*"));
}

// The code is that of the rank that failed, whatever the others make of their signal.
TEST(SpawnTest, RanksThatIgnoreTheirEndAreKilledAfterTheGrace) {
  Loss loss;
  SpawnRequest request = EndingOthers(
      InFolder("test $COTUNE_RANK = 1 && exit 3; test $COTUNE_RANK = 2 && trap 'exit 44' TERM; "
               "test $COTUNE_RANK = 0 && trap '' TERM; exec 3<>$fifo; rm $fifo; "
               "while :; do read x <&3; done"),
      3, loss);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(loss.text, HasSubstr("rank 1 "));
  for (const std::string& message : result.messages) {
    EXPECT_THAT(message, MatchesRegex("rank [02] .* did not end in time and was killed"));
  }
}

// A healthy rank that is killed because another one stays stopped is not the one that was lost.
TEST(SpawnTest, WhatItKillsItselfIsNotTakenForALoss) {
  Loss loss;
  SpawnRequest request = EndingOthers(
      InFolder(std::string("test $COTUNE_RANK = 1 && kill -STOP $$; ") + kWaitForEver), 2, loss);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(loss.calls, 0) << loss.text;
  EXPECT_THAT(result.messages,
              ElementsAre(MatchesRegex("rank 0 .* did not end in time and was killed"),
                          MatchesRegex("rank 1 .* was stopped and was killed")));
}

// The rank that the others miss need not be the one that fails.
TEST(SpawnTest, ALossNamesTheRanksThatHaveLeftWithoutAnError) {
  const FifoForTest pids;
  Loss loss;
  // Ends that were not collected yet show as zombies.
  Spawned(EndingOthers("test $COTUNE_RANK = 0 || { echo $$ >'" + pids.path() +
                           "'; exit 0; }; for i in 1 2; do read pid; until grep -q ') Z ' "
                           "/proc/$pid/stat; do sleep 0.01; done; done <'" +
                           pids.path() + "'; exit 5",
                       3, loss));
  EXPECT_EQ(loss.rank, 0);
  EXPECT_THAT(loss.text, MatchesRegex("rank 0 .* ended with exit code 5 after [0-9.]+ s; "
                                      "ranks 1, 2 have ended with exit code 0"));
}

TEST(SpawnTest, OnlyRankZeroReadsWhatThisProcessCould) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "line\n", 5), 5);
  close(ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  const Captured run = RunCaptured(Shell("test $COTUNE_RANK = 0 && cat || wc -c", 3));
  dup2(before, STDIN_FILENO);
  for (const int fd : {before, ends[0]}) close(fd);
  EXPECT_EQ(run.out, "line\n");
  EXPECT_THAT(run.err, AllOf(HasSubstr("[rank 1] 0\n"), HasSubstr("[rank 2] 0\n")));
}

TEST(SpawnTest, ShowsProgressBarsAndCutsEndlessLines) {
  const Captured run =
      RunCaptured(Shell("test $COTUNE_RANK = 0 || { printf '\\r10%%\\r20%%\\n'; "
                        "head -c 200000 /dev/zero | tr '\\0' x; }",
                        2));
  EXPECT_THAT(run.err, ::testing::StartsWith("[rank 1] 10%\n[rank 1] 20%\n[rank 1] xxx"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), 'x'), 200000);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 2 + 4);
}

TEST(SpawnTest, AnExitWithoutTheWordThatItIsDoneIsALoss) {
  SpawnRequest request = Shell(
      "test $COTUNE_RANK = 1 || printf 'done\\0' > /proc/self/fd/$COTUNE_ERROR_PIPE; exit 0", 2);
  request.on_error = [](const std::vector<int>&, const std::string& text) {
    ADD_FAILURE() << text;
  };
  request.knows_error_pipe = true;
  EXPECT_EQ(SpawnRanks(request)->exit_code, 0);
  request.reports_milestones = true;
  const Result<SpawnResult> result = SpawnRanks(request);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->exit_code, 5);
  EXPECT_THAT(result->lost_ranks, ElementsAre(1));
  EXPECT_THAT(result->messages,
              ElementsAre(MatchesRegex("rank 1 .* ended with exit code 0 before it was done: .*")));
}

TEST(SpawnTest, AnExitCodeWithoutAWordIsALossAndNotTheCodeOfTheJob) {
  const auto result_of = [](const std::string& last_word) {
    SpawnRequest request = Shell("test $COTUNE_RANK = 0 || { " + last_word + "exit 7; }; " +
                                     "printf 'done\\0' > /proc/self/fd/$COTUNE_ERROR_PIPE",
                                 2);
    request.on_error = [](const std::vector<int>&, const std::string&) {};
    request.knows_error_pipe = true;
    request.reports_milestones = true;
    return SpawnRanks(request).value();
  };
  const SpawnResult silent = result_of("");
  EXPECT_EQ(silent.exit_code, 5);
  EXPECT_THAT(silent.messages,
              ElementsAre(MatchesRegex("rank 1 .* ended with exit code 7 before it was done: a "
                                       "plugin may have called exit\\(\\).*")));
  for (const std::string word : {"done", "an error"}) {
    const SpawnResult told =
        result_of("printf '" + word + "\\0' > /proc/self/fd/$COTUNE_ERROR_PIPE; ");
    EXPECT_EQ(told.exit_code, 7) << word;
    EXPECT_THAT(told.messages, ElementsAre()) << word;
  }
}

TEST(SpawnTest, ALossBeforeTheRanksHaveJoinedEndsTheOthersAtOnce) {
  SpawnRequest request =
      Shell(InFolder(std::string("test $COTUNE_RANK = 1 && kill -KILL $$; ") + kWaitForEver), 3);
  request.on_error = [](const std::vector<int>&, const std::string&) {};
  request.knows_error_pipe = true;
  request.reports_milestones = true;
  request.grace_ns = INT64_MAX / 4;
  const Result<SpawnResult> result = SpawnRanks(request);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->exit_code, 5);
  EXPECT_TRUE(result->was_lost_before_join);
  EXPECT_THAT(result->lost_ranks, ElementsAre(1));
  EXPECT_THAT(result->messages,
              ElementsAre(MatchesRegex("rank 1 .* was ended by SIGKILL \\(Killed\\) before the "
                                       "ranks had joined")));
}

TEST(SpawnTest, ALossAfterTheRanksHaveJoinedIsTheirsToNotice) {
  // Rank 0 reads until rank 1, which alone can write, is gone, and then says what it makes of that.
  const std::string fifo = std::string(getenv("TEST_TMPDIR")) + "/held_by_rank_1";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  SpawnRequest request = Shell(
      "pipe=/proc/self/fd/$COTUNE_ERROR_PIPE; printf 'joined\\0' > $pipe; "
      "test $COTUNE_RANK = 1 && { exec 3> " +
          fifo +
          "; kill -KILL $$; }; "
          "read x < " +
          fifo + "; printf 'lost\\0' > $pipe; exit 5",
      2);
  std::vector<std::string> errors;
  request.on_error = [&errors](const std::vector<int>&, const std::string& text) {
    errors.push_back(text);
  };
  request.knows_error_pipe = true;
  request.reports_milestones = true;
  const Result<SpawnResult> result = SpawnRanks(request);
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->was_lost_before_join);
  EXPECT_EQ(result->exit_code, 5);
  EXPECT_THAT(errors, ElementsAre("lost"));
}

// A rank whose program fails leaves nothing behind either.
TEST(SpawnTest, WhatAFailedRankLeavesBehindIsEnded) {
  Loss loss;
  SpawnerForTest spawner(
      EndingOthers(InFolder("exec 3<>$fifo; rm $fifo; (trap '' TERM INT; echo ready; read x <&3) & "
                            "test $COTUNE_RANK = 0 && read x <&3; exit 3"),
                   2, loss));
  EXPECT_TRUE(spawner.ReadToTheEnd()) << "the child of a rank lives on";
  EXPECT_EQ(spawner.ExitCode(), 3);
}

}  // namespace
}  // namespace cotune
