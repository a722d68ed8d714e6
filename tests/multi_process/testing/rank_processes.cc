#include "tests/multi_process/testing/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/base/clock.h"
#include "fmt/format.h"

namespace cotune {

void TestLink::Report(std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (write(report_fd_, line.data(), line.size()) < 0) _exit(99);
}

void TestLink::AwaitWord() {
  char word = 0;
  if (read(word_fd_, &word, 1) != 1) _exit(98);  // the test is gone
}

void TestLink::ReportInHandler(std::string_view line) const {
  if (write(report_fd_, line.data(), line.size()) < 0) _exit(99);
}

PrivateFolder::PrivateFolder() {
  std::string pattern = "/tmp/cotune.XXXXXX";  // short: paths of sockets are bounded
  path_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

RankProcesses::~RankProcesses() {
  for (Child& child : children_) {
    if (!child.ended) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    for (int fd : {child.pid_fd, child.report_fd, child.word_fd}) {
      if (fd >= 0) close(fd);
    }
  }
}

void RankProcesses::Start(const Body& body) {
  std::array<int, 2> report{};
  std::array<int, 2> word{};
  if (pipe2(report.data(), O_CLOEXEC) != 0 || pipe2(word.data(), O_CLOEXEC) != 0) abort();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const Child& other : children_) {
      for (int fd : {other.pid_fd, other.report_fd, other.word_fd}) close(fd);
    }
    close(report[0]);
    close(word[1]);
    TestLink link(report[1], word[0]);
    const int exit_code = body(link);
    std::fflush(nullptr);
    _exit(exit_code);
  }
  close(report[1]);
  close(word[0]);
  fcntl(report[0], F_SETFL, O_NONBLOCK);
  Child child;
  child.pid = pid;
  child.pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  child.report_fd = report[0];
  child.word_fd = word[1];
  children_.push_back(std::move(child));
}

void RankProcesses::ReadReports(Child& child) {
  std::array<char, 4096> buffer{};
  ssize_t size = 0;
  while ((size = read(child.report_fd, buffer.data(), buffer.size())) > 0) {
    child.partial_line.append(buffer.data(), static_cast<size_t>(size));
  }
  for (size_t end = child.partial_line.find('\n'); end != std::string::npos;
       end = child.partial_line.find('\n')) {
    child.lines.push_back(child.partial_line.substr(0, end));
    child.partial_line.erase(0, end + 1);
  }
}

void RankProcesses::Collect(Child& child) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED);
  child.exit = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
  child.ended = true;
  ReadReports(child);
}

bool RankProcesses::ReadUntil(const std::function<bool()>& done, int64_t wait_ns) {
  const MonotonicClock clock;
  const int64_t until_ns = clock.now_ns() + wait_ns;
  while (!done()) {
    std::vector<pollfd> polled;
    for (const Child& child : children_) {
      polled.push_back({child.ended ? -1 : child.pid_fd, POLLIN, 0});
      polled.push_back({child.ended ? -1 : child.report_fd, POLLIN, 0});
    }
    const int64_t left_ns = until_ns - clock.now_ns();
    if (left_ns <= 0) return false;
    poll(polled.data(), polled.size(), static_cast<int>(left_ns / 1'000'000 + 1));
    for (size_t i = 0; i < children_.size(); ++i) {
      if ((polled[2 * i + 1].revents & POLLIN) != 0) ReadReports(children_[i]);
      if (polled[2 * i].revents != 0) Collect(children_[i]);
    }
  }
  return true;
}

bool RankProcesses::WaitForEnd(const std::vector<size_t>& numbers, int64_t wait_ns) {
  const auto all_ended = [&] {
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](size_t number) { return children_[number].ended; });
  };
  return ReadUntil(all_ended, wait_ns);
}

bool RankProcesses::WaitForLine(size_t number, std::string_view start, int64_t wait_ns) {
  return ReadUntil([&] { return !LinesOf(number, start).empty(); }, wait_ns);
}

void RankProcesses::Say(size_t number) {
  if (write(children_[number].word_fd, "!", 1) != 1) abort();
}

bool RankProcesses::Release(const std::vector<size_t>& numbers, std::string_view start,
                            int64_t wait_ns) {
  for (const size_t number : numbers) {
    if (!WaitForLine(number, start, wait_ns)) return false;
  }
  for (const size_t number : numbers) Say(number);
  return true;
}

void RankProcesses::Signal(size_t number, int signal) { kill(children_[number].pid, signal); }

bool RankProcesses::WaitForStop(size_t number) {
  siginfo_t info{};
  const auto pid = static_cast<id_t>(children_[number].pid);
  return waitid(P_PID, pid, &info, WSTOPPED | WEXITED | WNOWAIT) == 0 &&
         info.si_code == CLD_STOPPED;
}

std::vector<std::string> RankProcesses::LinesOf(size_t number, std::string_view start) const {
  std::vector<std::string> found;
  for (const std::string& line : children_[number].lines) {
    if (line.starts_with(start)) found.push_back(line.substr(start.size()));
  }
  return found;
}

std::string RankProcesses::Transcript() const {
  std::string text;
  for (size_t i = 0; i < children_.size(); ++i) {
    const Child& child = children_[i];
    text += fmt::format("process {} {} {}\n", i, child.ended ? "ended" : "runs", child.exit);
    for (const std::string& line : child.lines) text += "  " + line + "\n";
  }
  return text;
}

}  // namespace cotune
