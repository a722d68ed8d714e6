#include "integration/testing/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace cotune {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr unsigned kPatienceS = 60;

// The test's own end, and the other one.
std::array<int, 2> Connect(SpawnerForTest::Output output) {
  std::array<int, 2> ends{};
  const bool made = output == SpawnerForTest::Output::kTerminal
                        ? openpty(ends.data(), &ends[1], nullptr, nullptr, nullptr) == 0
                        : pipe2(ends.data(), O_CLOEXEC) == 0;
  if (!made) abort();
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  return ends;
}

void UseInChild(int fd, SpawnerForTest::Output output) {
  if (output == SpawnerForTest::Output::kTerminal) {
    setsid();
    ioctl(fd, TIOCSCTTY, 0);
    dup2(fd, STDIN_FILENO);
  }
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  close(fd);
}

}  // namespace

SpawnerForTest::SpawnerForTest(const SpawnRequest& request, Output output) {
  const std::array<int, 2> ends = Connect(output);
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    UseInChild(ends[1], output);
    const auto result = SpawnRanks(request);
    _exit(result ? result->exit_code : 99);
  }
  close(ends[1]);
  output_fd_ = ends[0];
}

SpawnerForTest::~SpawnerForTest() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(output_fd_);
}

bool SpawnerForTest::ReadUntil(const std::function<bool(const std::string&)>& done) {
  while (!done(output_)) {
    pollfd polled{output_fd_, POLLIN, 0};
    if (poll(&polled, 1, kPatienceMs) <= 0) return false;
    std::array<char, 512> buffer{};
    const ssize_t size = read(output_fd_, buffer.data(), buffer.size());
    // A terminal that nobody holds any more gives an error.
    if (size <= 0) return size == 0 || errno == EIO;
    output_.append(buffer.data(), static_cast<size_t>(size));
  }
  return true;
}

bool SpawnerForTest::ReadToTheEnd() {
  return ReadUntil([](const std::string&) { return false; });
}

void SpawnerForTest::Type(const std::string& text) const {
  if (write(output_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) abort();
}

bool SpawnerForTest::AwaitStop() const {
  alarm(kPatienceS);
  int status = 0;
  const bool stopped = waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  alarm(0);
  return stopped;
}

int SpawnerForTest::ExitCode() const {
  alarm(kPatienceS);
  int status = 0;
  waitpid(pid_, &status, 0);
  alarm(0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace cotune
