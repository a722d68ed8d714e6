#include "integration/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int64_t kSecondNs = 1'000'000'000;

SpawnRequest Shell(const std::string& script, int ranks) {
  SpawnRequest request;
  request.command = {"sh", "-c", script};
  request.ranks = ranks;
  request.grace_ns = 60 * kSecondNs;
  return request;
}

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

std::string InFolder(const std::string& script) {
  return "cd \"$TEST_TMPDIR\"; fifo=f.$$; mkfifo $fifo; trap 'rm -f $fifo' EXIT; " + script;
}

TEST(SpawnTest, EndsTheOthersAfterTheGrace) {
  SpawnRequest request =
      Shell(InFolder("test $COTUNE_RANK = 1 && exit 4; exec 3<>$fifo; rm $fifo; read x <&3"), 3);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(
      result.messages,
      ElementsAre(MatchesRegex("rank 0 \\(pid [0-9]+, sh\\) did not end in time and was ended"),
                  MatchesRegex("rank 2 \\(pid [0-9]+, sh\\) did not end in time and was ended")));
}

TEST(SpawnTest, NamesARankThatIsStopped) {
  SpawnRequest request = Shell("test $COTUNE_RANK != 1 || kill -STOP $$", 2);
  request.grace_ns = kSecondNs / 5;
  const SpawnResult result = Spawned(request);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.messages,
              ElementsAre(MatchesRegex("rank 1 \\(pid [0-9]+, sh\\) was stopped and was ended")));
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

// A process of its own that spawns; what its ranks write comes back through a pipe.
class Spawner {
 public:
  explicit Spawner(const SpawnRequest& request) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      const auto result = SpawnRanks(request);
      _exit(result ? result->exit_code : 99);
    }
    close(ends[1]);
    output_fd_ = ends[0];
  }
  ~Spawner() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(output_fd_);
  }
  pid_t pid() const { return pid_; }
  // Reads until `done`, or until nobody holds the pipe any more; false after a minute.
  bool ReadUntil(const std::function<bool(const std::string&)>& done) {
    while (!done(output_)) {
      pollfd polled{output_fd_, POLLIN, 0};
      if (poll(&polled, 1, 60'000) <= 0) return false;
      std::array<char, 512> buffer{};
      const ssize_t size = read(output_fd_, buffer.data(), buffer.size());
      if (size <= 0) return size == 0;
      output_.append(buffer.data(), static_cast<size_t>(size));
    }
    return true;
  }
  bool ReadToTheEnd() {
    return ReadUntil([](const std::string&) { return false; });
  }
  int ExitCode() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

std::string Waiting(const std::string& on_signal) {
  return InFolder("exec 3<>$fifo; rm $fifo; " + on_signal + "echo ready; read x <&3; exit 1");
}

bool BothReady(const std::string& output) { return output.find("ready") != output.rfind("ready"); }

TEST(SpawnTest, PassesSignalsOnToEveryRank) {
  Spawner spawner(Shell(Waiting("trap 'echo caught; exit 42' TERM; "), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 42);
  EXPECT_NE(spawner.output().find("caught"), spawner.output().rfind("caught"));
}

TEST(SpawnTest, AnInterruptThatNobodyCatchesIsNoLostRank) {
  Spawner spawner(Shell(Waiting(""), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGTERM);
  ASSERT_TRUE(spawner.ReadToTheEnd()) << spawner.output();
  EXPECT_EQ(spawner.ExitCode(), 130);
}

// The ranks hold the pipe: its end says that all of them are gone.
TEST(SpawnTest, RanksEndWithTheirParent) {
  Spawner spawner(Shell(Waiting(""), 2));
  ASSERT_TRUE(spawner.ReadUntil(BothReady)) << spawner.output();
  kill(spawner.pid(), SIGKILL);
  EXPECT_TRUE(spawner.ReadToTheEnd()) << "a rank lives on";
}

}  // namespace
}  // namespace cotune
