#include "sync/testing/rank_processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "core/base/clock.h"

namespace cotune::sync {
namespace {

constexpr int64_t kMillisecondNs = 1'000'000;

int PollTimeout(int64_t wait_ns) {
  return wait_ns < 0 ? -1 : static_cast<int>((wait_ns + kMillisecondNs - 1) / kMillisecondNs);
}

}  // namespace

int64_t NowNs() { return MonotonicClock().now_ns(); }

void Reporter::Line(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = write(report_fd_, text.data(), text.size());
}

void Reporter::ErrorLine(const Error& error) {
  Line(fmt::format("error {} ranks={} {}", ErrorCodeName(error.code), fmt::join(error.ranks, ","),
                   error.ToText()));
}

bool Reporter::HeardWord(int64_t wait_ns) const {
  pollfd polled = {word_fd_, POLLIN, 0};
  return poll(&polled, 1, PollTimeout(wait_ns)) == 1;
}

PrivateDirectory::PrivateDirectory() {
  std::string pattern = "/tmp/cotune.XXXXXX";  // short: socket paths are bounded
  path_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Processes::~Processes() {
  for (size_t number = 0; number < children_.size(); ++number) {
    Child& child = children_[number];
    if (!child.ended) Signal(number, SIGKILL);
    int status = 0;
    // A sanitizer that has something to say ends its process with a status.
    if (waitpid(child.pid, &status, 0) == child.pid && WIFEXITED(status) &&
        WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "process %zu of a test ended with status %d\n", number,
                   WEXITSTATUS(status));
      abort();
    }
    close(children_[number].report_fd);
    close(children_[number].word_fd);
  }
}

size_t Processes::Start(const Body& body) {
  std::array<int, 2> report = {};
  std::array<int, 2> word = {};
  if (pipe(report.data()) != 0 || pipe(word.data()) != 0) abort();
  const pid_t pid = fork();
  if (pid == 0) {
    // Other children's pipes must not be held open here: their ends are how words and endings are
    // seen.
    for (const Child& other : children_) {
      close(other.report_fd);
      close(other.word_fd);
    }
    close(report[0]);
    close(word[1]);
    Reporter reporter(report[1], word[0]);
    body(reporter);
    _exit(0);
  }
  close(report[1]);
  close(word[0]);
  children_.push_back({pid, report[0], word[1], "", false});
  return children_.size() - 1;
}

bool Processes::ReadUntil(const std::function<bool()>& done, int64_t wait_ns) {
  const int64_t until_ns = NowNs() + wait_ns;
  while (!done()) {
    std::vector<pollfd> polled;
    for (const Child& child : children_) {
      polled.push_back({child.ended ? -1 : child.report_fd, POLLIN, 0});
    }
    const int64_t left_ns = until_ns - NowNs();
    if (left_ns <= 0 || poll(polled.data(), polled.size(), PollTimeout(left_ns)) == 0) return false;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (polled[i].revents == 0) continue;
      std::array<char, 4096> buffer = {};
      const ssize_t bytes = read(children_[i].report_fd, buffer.data(), buffer.size());
      if (bytes > 0) children_[i].report.append(buffer.data(), static_cast<size_t>(bytes));
      if (bytes == 0) children_[i].ended = true;
    }
  }
  return true;
}

bool Processes::WaitForEnd(const std::vector<size_t>& numbers, int64_t wait_ns) {
  return ReadUntil(
      [&] {
        return std::all_of(numbers.begin(), numbers.end(),
                           [&](size_t number) { return children_[number].ended; });
      },
      wait_ns);
}

bool Processes::WaitForLine(const std::vector<size_t>& numbers, const std::string& line,
                            int64_t wait_ns) {
  return ReadUntil(
      [&] {
        return std::all_of(numbers.begin(), numbers.end(), [&](size_t number) {
          const std::vector<std::string> said = lines(number);
          return std::find(said.begin(), said.end(), line) != said.end();
        });
      },
      wait_ns);
}

void Processes::Speak(size_t number) {
  [[maybe_unused]] const ssize_t written = write(children_[number].word_fd, "!", 1);
}

void Processes::Signal(size_t number, int signal) { kill(children_[number].pid, signal); }

std::vector<std::string> Processes::lines(size_t number) const {
  std::vector<std::string> lines;
  std::istringstream report(children_[number].report);
  for (std::string line; std::getline(report, line);) lines.push_back(line);
  return lines;
}

std::string Processes::last_line(size_t number) const {
  const std::vector<std::string> all = lines(number);
  return all.empty() ? "(no report)" : all.back();
}

SocketExchangeOptions OptionsForTest(const PrivateDirectory& directory, int rank, int world_size,
                                     int64_t deadline_ns) {
  SocketExchangeOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.job_id = "test";
  options.code_version = "1.0";
  options.socket_path = directory.socket_path();
  options.heartbeat_interval_ns = 100 * kMillisecondNs;
  options.heartbeat_timeout_ns = 1500 * kMillisecondNs;
  options.deadline_ns = NowNs() + deadline_ns;
  return options;
}

}  // namespace cotune::sync
