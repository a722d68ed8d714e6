// Children that a rank forks and that run no other program, as the workers of data loaders.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/fork_guard.h"
#include "sync/socket/socket_exchange.h"
#include "sync/testing/rank_processes.h"

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDeadlineNs = 20 * kSecondNs;

using Exchange = Result<std::unique_ptr<RankExchange>>;

// Nobody stops in these tests: only the end of a connection tells that a rank is gone.
SocketExchangeOptions Options(const PrivateDirectory& directory, int rank, int world_size) {
  SocketExchangeOptions options = OptionsForTest(directory, rank, world_size, kDeadlineNs);
  options.heartbeat_timeout_ns = 10 * kDeadlineNs;
  return options;
}

// The body's result is the exit code; a child that hangs is ended by a signal.
pid_t Fork(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(60);
  _exit(body());
}

int StatusOf(pid_t pid) {
  int status = -1;
  return waitpid(pid, &status, 0) == pid ? status : -1;
}

// Waits for the end of a pipe that the test holds.
int WaitForTest(int read_fd) {
  char byte = 0;
  return read(read_fd, &byte, 1) == 0 ? 0 : 1;
}

TEST(ForkedChild, DoesNotKeepADeadRankAlive) {
  const PrivateDirectory directory;
  Processes processes;
  processes.Start([&](Reporter& report) {
    const MonotonicClock clock;
    const Exchange exchange = ConnectSocketExchange(Options(directory, 0, 2), clock);
    if (!exchange) return report.ErrorLine(exchange.error());
    const auto step = (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs);
    if (!step) return report.ErrorLine(step.error());
    report.Line("all have come");
  });
  processes.Start([&](Reporter& report) {
    const MonotonicClock clock;
    const Exchange exchange = ConnectSocketExchange(Options(directory, 1, 2), clock);
    if (!exchange) return report.ErrorLine(exchange.error());
    // The child lives on until the test ends.
    Fork([&] { return report.HeardWord() ? 0 : 1; });
    raise(SIGKILL);
  });
  ASSERT_TRUE(processes.WaitForEnd({0}, 3 * kDeadlineNs));
  EXPECT_THAT(processes.last_line(0),
              AllOf(HasSubstr("ranks=1"), HasSubstr("rank 1 died: its connection ended")));
}

TEST(ForkedChild, DoesNotKeepTheSocketOfADeadRankZero) {
  const PrivateDirectory directory;
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t rank_zero = Fork([&] {
    const MonotonicClock clock;
    const Exchange exchange = ConnectSocketExchange(Options(directory, 0, 1), clock);
    if (!exchange) return 1;
    close(ends[1]);
    // The child closes what it inherits when it first runs, which may be after its parent's death.
    std::array<int, 2> begins = {};
    if (pipe(begins.data()) != 0) return 2;
    Fork([&] {
      if (write(begins[1], "", 1) != 1) return 1;
      return WaitForTest(ends[0]);
    });
    char byte = 0;
    if (read(begins[0], &byte, 1) != 1) return 3;
    raise(SIGKILL);
    return 4;
  });
  const int status = StatusOf(rank_zero);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const MonotonicClock clock;
  const Exchange again = ConnectSocketExchange(Options(directory, 0, 1), clock);
  EXPECT_TRUE(again.has_value()) << again.error().ToText();
  close(ends[0]);
  close(ends[1]);
}

// Uses the exchange that a rank's forked child inherits, and reports what is not refused.
int UseInChild(std::unique_ptr<RankExchange> exchange, Reporter& report) {
  const auto step = exchange->Step("child", "", 0, NowNs() + kDeadlineNs);
  const auto put = exchange->StorePut("child", "");
  for (const Error& error : {step ? Error{} : step.error(), put ? Error{} : put.error()}) {
    if (error.code == ErrorCode::kUsage && error.what.find("forked") != std::string::npos) continue;
    report.Line("not refused: " + error.ToText());
  }
  exchange.reset();
  return 0;
}

TEST(ForkedChild, IsRefusedAndItsParentGoesOn) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.Start([&, rank](Reporter& report) {
      const MonotonicClock clock;
      Exchange exchange = ConnectSocketExchange(Options(directory, rank, 2), clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      // Several, because another thread of the rank may hold a mutex when one is forked.
      for (int child = 0; child < 20; ++child) {
        const int status = StatusOf(Fork([&] { return UseInChild(std::move(*exchange), report); }));
        if (status != 0) report.Line("a child ended with " + std::to_string(status));
      }
      const auto step = (*exchange)->Step("parents", "", 0, NowNs() + kDeadlineNs);
      if (!step) return report.ErrorLine(step.error());
      exchange->reset();
      report.Line("done");
    });
  }
  ASSERT_TRUE(processes.WaitForEnd({0, 1}, 6 * kDeadlineNs));
  EXPECT_THAT(processes.lines(0), ElementsAre("done"));
  EXPECT_THAT(processes.lines(1), ElementsAre("done"));
}

// Sockets of this process that a program started by it would inherit.
std::vector<std::string> InheritedSockets() {
  std::vector<std::string> inherited;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    int fd = -1;
    const std::string name = entry.path().filename();
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (target.starts_with("socket:") && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) {
      inherited.push_back(name + " " + target);
    }
  }
  return inherited;
}

TEST(StartedProgram, InheritsNoSocket) {
  const std::vector<std::string> before = InheritedSockets();
  const PrivateDirectory directory;
  const MonotonicClock clock;
  std::unique_ptr<RankExchange> second;
  std::thread other([&] {
    Exchange exchange = ConnectSocketExchange(Options(directory, 1, 2), clock);
    if (exchange) second = *std::move(exchange);
  });
  const Exchange first = ConnectSocketExchange(Options(directory, 0, 2), clock);
  other.join();
  ASSERT_TRUE(first.has_value()) << first.error().ToText();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(InheritedSockets(), before);
}

// ---- The descriptors themselves ----

TEST(HomeFd, IsClosedInAChildAndOpenInTheParent) {
  ASSERT_TRUE(GuardForks());
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  const HomeFd first = HomeFd::Make([&] { return ends[0]; });
  HomeFd second = HomeFd::Make([&] { return ends[1]; });
  const HomeFd moved = std::move(second);
  const int status = StatusOf(Fork([&] {
    if (first.get() != -1 || moved.get() != -1) return 1;
    return fcntl(ends[0], F_GETFD) == -1 && fcntl(ends[1], F_GETFD) == -1 ? 0 : 2;
  }));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(moved.get(), ends[1]);
  EXPECT_NE(fcntl(ends[0], F_GETFD), -1);
  EXPECT_NE(fcntl(ends[1], F_GETFD), -1);
}

// The number may be another descriptor's in a child.
TEST(HomeFd, LeavesTheNumberAloneWhenItIsDestroyedInAChild) {
  ASSERT_TRUE(GuardForks());
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);
  auto fd = std::make_unique<HomeFd>(HomeFd::Make([&] { return ends[0]; }));
  const int status = StatusOf(Fork([&] {
    if (dup2(ends[1], ends[0]) != ends[0]) return 1;
    fd.reset();
    return fcntl(ends[0], F_GETFD) != -1 ? 0 : 2;
  }));
  EXPECT_EQ(status, 0);
  close(ends[1]);
}

TEST(HomeProcess, IsNotTheChild) {
  ASSERT_TRUE(GuardForks());
  const HomeProcess home;
  EXPECT_TRUE(home.IsHere());
  EXPECT_TRUE(home.Check().has_value());
  const int status = StatusOf(Fork([&] {
    const HomeProcess child;
    return !home.IsHere() && home.Check().error().code == ErrorCode::kUsage && child.IsHere() ? 0
                                                                                              : 1;
  }));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(home.IsHere());
}

}  // namespace
}  // namespace cotune::sync
