#include "integration/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "fmt/format.h"
#include "integration/multicast_switches.h"
#include "integration/signal_pipe.h"

namespace cotune {
namespace {

constexpr int kRankLostExitCode = 5;
constexpr int kInterruptedExitCode = 130;
constexpr int kCannotExecExitCode = 127;

// One rank that was started.
struct Child {
  int rank = 0;
  pid_t pid = -1;
  int output_fd = -1;  // of ranks other than 0; -1 when closed
  std::string partial_line;
  int error_fd = -1;  // likewise, where errors are collected
  std::string partial_error;
  bool running = true;
  bool stopped = false;
  int wait_status = 0;
};

// error_fd: the rank's end of its error pipe, -1: none.
std::vector<std::string> RankVariables(const SpawnRequest& request, int rank,
                                       const std::string& job_id, int error_fd) {
  std::vector<std::string> variables = {fmt::format("COTUNE_RANK={}", rank),
                                        fmt::format("COTUNE_WORLD_SIZE={}", request.ranks),
                                        fmt::format("COTUNE_LOCAL_RANK={}", rank),
                                        fmt::format("COTUNE_LOCAL_SIZE={}", request.ranks),
                                        "COTUNE_JOB_ID=" + job_id,
                                        error_fd < 0
                                            ? fmt::format("{}=", kErrorPipeVariable)
                                            : fmt::format("{}={}", kErrorPipeVariable, error_fd)};
  for (const auto& [name, value] : kMulticastSwitches) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  return variables;
}

// The environment of a rank: this process's with the rank's variables in place of its own.
std::vector<std::string> RankEnvironment(const SpawnRequest& request, int rank,
                                         const std::string& job_id, int error_fd) {
  const std::vector<std::string> own_variables = RankVariables(request, rank, job_id, error_fd);
  std::vector<std::string> variables = own_variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, std::min(entry.find('='), entry.size()) + 1);
    const bool replaced =
        std::any_of(own_variables.begin(), own_variables.end(),
                    [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) variables.emplace_back(entry);
  }
  return variables;
}

// Runs in the child between fork and exec: calls only what is safe there.
[[noreturn]] void Exec(const std::vector<char*>& arguments, const std::vector<char*>& variables,
                       int output_fd, int error_fd, bool passes_error_pipe, pid_t parent,
                       const SignalPipe& signals) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecExitCode);  // it went before the line above
  signals.RestoreInChild();
  if (output_fd >= 0) {
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
  }
  if (error_fd >= 0 && passes_error_pipe) fcntl(error_fd, F_SETFD, 0);
  execvpe(arguments[0], arguments.data(), variables.data());
  const char* const reason = strerrordesc_np(errno);
  const bool is_collected = error_fd >= 0;
  const std::array<const char*, 5> parts = {
      is_collected ? "error 3 (environment): cannot start the program of a rank ("
                   : "cotune: error 3 (environment): cannot start the program of a rank (",
      arguments[0], "): ", reason, "; check its name and that it may be run"};
  ssize_t ignored = 0;
  for (const char* part : parts) {
    ignored += write(is_collected ? error_fd : STDERR_FILENO, part, strlen(part));
  }
  if (!is_collected) ignored += write(STDERR_FILENO, "\n", 1);
  _exit(kCannotExecExitCode);
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Both ends of a pipe; closes what is left open.
struct Pipe {
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  bool Open() { return pipe2(ends.data(), O_CLOEXEC) == 0; }
  // The reading end, which does not block; the caller closes it.
  int TakeReader() {
    if (ends[0] >= 0) fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return std::exchange(ends[0], -1);
  }
  std::array<int, 2> ends = {-1, -1};
};

Result<Child> Start(const SpawnRequest& request, int rank, const std::string& job_id,
                    SignalPipe& signals) {
  Pipe output;
  Pipe errors;
  // Rank 0 keeps the terminal: its progress line is redrawn in place.
  if ((rank != 0 && !output.Open()) || (request.on_error && !errors.Open())) {
    return Fail(ErrorCode::kEnvironment, "cannot make a pipe", fmt::format("rank {}", rank),
                std::strerror(errno));
  }
  std::vector<std::string> command = request.command;
  std::vector<std::string> environment =
      RankEnvironment(request, rank, job_id, request.knows_error_pipe ? errors.ends[1] : -1);
  const std::vector<char*> arguments = Pointers(command);
  const std::vector<char*> variables = Pointers(environment);
  const pid_t parent = getpid();
  signals.Block();
  const pid_t pid = fork();
  if (pid == 0) {
    Exec(arguments, variables, output.ends[1], errors.ends[1], request.knows_error_pipe, parent,
         signals);
  }
  signals.Unblock();
  if (pid < 0) {
    return Fail(ErrorCode::kEnvironment, "cannot start a process", fmt::format("rank {}", rank),
                std::strerror(errno));
  }
  Child child;
  child.rank = rank;
  child.pid = pid;
  child.output_fd = output.TakeReader();
  child.error_fd = errors.TakeReader();
  return child;
}

void PrintLine(const Child& child, std::string_view line) {
  const std::string text = fmt::format("[rank {}] {}\n", child.rank, line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// With what is left of a line. A process that the rank left behind may still hold the other end.
void CloseOutput(Child& child) {
  if (child.output_fd < 0) return;
  if (!child.partial_line.empty()) PrintLine(child, child.partial_line);
  child.partial_line.clear();
  close(child.output_fd);
  child.output_fd = -1;
}

// Passes on what the rank has written, whole lines at a time.
void ReadOutput(Child& child) {
  char buffer[4096];
  ssize_t size = 0;
  while ((size = read(child.output_fd, buffer, sizeof(buffer))) > 0) {
    child.partial_line.append(buffer, size);
    for (size_t end = child.partial_line.find('\n'); end != std::string::npos;
         end = child.partial_line.find('\n')) {
      PrintLine(child, std::string_view(child.partial_line).substr(0, end));
      child.partial_line.erase(0, end + 1);
    }
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  CloseOutput(child);
}

// Errors that several ranks have are told once.
class ErrorCollector {
 public:
  ErrorCollector(const SpawnRequest& request, const Clock& clock)
      : request_(request), clock_(clock) {}

  // Takes what the rank has written to its pipe.
  void Read(Child& child) {
    std::array<char, 4096> buffer{};
    ssize_t size = 0;
    while ((size = read(child.error_fd, buffer.data(), buffer.size())) > 0) {
      child.partial_error.append(buffer.data(), size);
      for (size_t end = child.partial_error.find('\0'); end != std::string::npos;
           end = child.partial_error.find('\0')) {
        Add(child.rank, child.partial_error.substr(0, end));
        child.partial_error.erase(0, end + 1);
      }
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (!child.partial_error.empty()) Add(child.rank, child.partial_error);
    close(child.error_fd);
    child.error_fd = -1;
  }

  // When Tell is due; 0: nothing waits.
  int64_t due_ns() const { return waiting_.empty() ? 0 : due_ns_; }
  void Tell() {
    for (auto& [text, ranks] : waiting_) {
      std::sort(ranks.begin(), ranks.end());
      request_.on_error(ranks, text);
      told_.push_back(text);
    }
    waiting_.clear();
  }

 private:
  // Ranks fail alike within this time: they run the same lines.
  static constexpr int64_t kPatienceNs = 500'000'000;

  void Add(int rank, const std::string& text) {
    if (std::find(told_.begin(), told_.end(), text) != told_.end()) return;
    auto known = std::find_if(waiting_.begin(), waiting_.end(),
                              [&](const auto& each) { return each.first == text; });
    if (waiting_.empty()) due_ns_ = clock_.now_ns() + kPatienceNs;
    if (known == waiting_.end()) known = waiting_.insert(known, {text, {}});
    known->second.push_back(rank);
  }

  const SpawnRequest& request_;
  const Clock& clock_;
  int64_t due_ns_ = 0;
  std::vector<std::pair<std::string, std::vector<int>>> waiting_;  // text, ranks that said it
  std::vector<std::string> told_;
};

// Sees all ranks to their end.
class Supervisor {
 public:
  Supervisor(const SpawnRequest& request, std::vector<Child>& children, SignalPipe& signals)
      : request_(request), children_(children), signals_(signals) {}

  void Run() {
    while (AnyRunning()) {
      Wait();
      Reap();
      if (grace_end_ns_ != 0 && clock_.now_ns() >= grace_end_ns_) EndAll();
      if (errors_.due_ns() != 0 && clock_.now_ns() >= errors_.due_ns()) errors_.Tell();
    }
    for (Child& child : children_) {
      if (child.output_fd >= 0) ReadOutput(child);
      CloseOutput(child);
      if (child.error_fd >= 0) errors_.Read(child);
      if (child.error_fd >= 0) close(std::exchange(child.error_fd, -1));
    }
    errors_.Tell();
  }

  SpawnResult TakeResult() {
    for (const Child& child : children_) TakeExit(child);
    return std::move(result_);
  }

 private:
  bool AnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running; });
  }

  bool NoneStopped() const {
    return std::none_of(children_.begin(), children_.end(),
                        [](const Child& child) { return child.running && child.stopped; });
  }

  void Wait() {
    std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
      if (child.output_fd >= 0) waited.push_back({child.output_fd, POLLIN, 0});
      if (child.error_fd >= 0) waited.push_back({child.error_fd, POLLIN, 0});
    }
    int timeout_ms = -1;
    for (const int64_t due_ns : {grace_end_ns_, errors_.due_ns()}) {
      if (due_ns == 0) continue;
      const auto left_ms = static_cast<int>(
          std::clamp<int64_t>((due_ns - clock_.now_ns()) / 1'000'000 + 1, 0, INT_MAX));
      timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
    }
    poll(waited.data(), waited.size(), timeout_ms);
    while (const std::optional<SignalPipe::Received> signal = signals_.Read()) {
      // A terminal's interrupt (from the kernel) has reached the ranks already.
      if (signal->number == SIGCHLD) continue;
      interrupted_ = true;
      if (!signal->from_kernel) SendAll(signal->number);
    }
    for (Child& child : children_) {
      if (child.output_fd >= 0) ReadOutput(child);
      if (child.error_fd >= 0) errors_.Read(child);
    }
  }

  void Reap() {
    for (Child& child : children_) {
      int status = 0;
      while (child.running && waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
          child.stopped = WIFSTOPPED(status);
          if (child.stopped) BeginGrace();
          // All of the job was stopped and goes on, as a shell does it.
          if (!child.stopped && !failed_ && NoneStopped()) grace_end_ns_ = 0;
          continue;
        }
        child.running = false;
        child.wait_status = status;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        failed_ = true;
        BeginGrace();
      }
    }
  }

  // From now on the others have a bounded time: they notice the loss and end by themselves.
  void BeginGrace() {
    if (grace_end_ns_ == 0) grace_end_ns_ = clock_.now_ns() + request_.grace_ns;
  }

  void SendAll(int signal_number) {
    for (const Child& child : children_) {
      if (child.running) kill(child.pid, signal_number);
    }
  }

  void EndAll() {
    for (Child& child : children_) {
      if (!child.running) continue;
      AddMessage(child,
                 child.stopped ? "was stopped and was ended" : "did not end in time and was ended");
      result_.exit_code = kRankLostExitCode;
      kill(child.pid, SIGKILL);
    }
    // Nothing is left to wait for but their ends.
    grace_end_ns_ = INT64_MAX;
    ended_all_ = true;
  }

  void TakeExit(const Child& child) {
    const int ended_by = WIFSIGNALED(child.wait_status) ? WTERMSIG(child.wait_status) : 0;
    if (interrupted_ && (ended_by == SIGINT || ended_by == SIGTERM)) {
      // A program that does not catch the signal ends as the user wanted it.
      if (result_.exit_code == 0) result_.exit_code = kInterruptedExitCode;
    } else if (ended_by != 0) {
      const bool by_us = ended_all_ && ended_by == SIGKILL && !result_.messages.empty();
      if (!by_us || !Mentioned(child)) AddMessage(child, EndedByText(ended_by));
      result_.exit_code = kRankLostExitCode;
    } else if (result_.exit_code == 0) {
      result_.exit_code = WEXITSTATUS(child.wait_status);
    }
  }

  bool Mentioned(const Child& child) const {
    return std::find(result_.lost_ranks.begin(), result_.lost_ranks.end(), child.rank) !=
           result_.lost_ranks.end();
  }

  // "was ended by SIGKILL (Killed)"; signals without a name by their number.
  static std::string EndedByText(int signal_number) {
    const char* const name = sigabbrev_np(signal_number);
    return name == nullptr
               ? fmt::format("was ended by signal {}", signal_number)
               : fmt::format("was ended by SIG{} ({})", name, sigdescr_np(signal_number));
  }

  void AddMessage(const Child& child, const std::string& what) {
    result_.messages.push_back(fmt::format("rank {} (pid {}, {}) {}", child.rank, child.pid,
                                           request_.command.front(), what));
    auto& lost = result_.lost_ranks;
    lost.insert(std::upper_bound(lost.begin(), lost.end(), child.rank), child.rank);
  }

  const SpawnRequest& request_;
  std::vector<Child>& children_;
  SignalPipe& signals_;
  MonotonicClock clock_;
  ErrorCollector errors_{request_, clock_};
  int64_t grace_end_ns_ = 0;
  bool interrupted_ = false;
  bool failed_ = false;     // a rank has ended badly
  bool ended_all_ = false;  // by SIGKILL, after the time was over
  SpawnResult result_;
};

}  // namespace

Result<SpawnResult> SpawnRanks(const SpawnRequest& request) {
  if (request.ranks < 1 || request.command.empty()) {
    return Fail(ErrorCode::kUsage, fmt::format("cannot start {} ranks", request.ranks), "", "",
                "give at least one rank and a program");
  }
  SignalPipe signals;
  if (signals.fd() < 0) {
    return Fail(ErrorCode::kEnvironment, "cannot make a pipe", "", std::strerror(errno),
                "see `ulimit -n`");
  }
  // The clock makes the id of a job differ from that of an earlier process with the same number.
  const std::string job_id = fmt::format("{}-{}", getpid(), MonotonicClock().now_ns());
  std::vector<Child> children;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Result<Child> child = Start(request, rank, job_id, signals);
    if (!child) {
      for (const Child& started : children) kill(started.pid, SIGKILL);
      for (const Child& started : children) {
        waitpid(started.pid, nullptr, 0);
        for (const int fd : {started.output_fd, started.error_fd}) {
          if (fd >= 0) close(fd);
        }
      }
      return tl::make_unexpected(child.error());
    }
    children.push_back(std::move(*child));
  }
  Supervisor supervisor(request, children, signals);
  supervisor.Run();
  return supervisor.TakeResult();
}

}  // namespace cotune
