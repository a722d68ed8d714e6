#include "integration/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/clock.h"
#include "fmt/format.h"
#include "integration/multicast_switches.h"
#include "integration/rank_process.h"
#include "integration/rank_supervisor.h"
#include "integration/signal_pipe.h"

namespace cotune {
namespace {

constexpr int kCannotExecExitCode = 127;

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
  setpgid(0, 0);
  signals.RestoreInChild();
  if (output_fd >= 0) {
    dup2(output_fd, STDOUT_FILENO);
    dup2(output_fd, STDERR_FILENO);
    // Only rank 0 reads what this process could: several would each get a part of it.
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0 && nothing != STDIN_FILENO) {
      dup2(nothing, STDIN_FILENO);
      close(nothing);
    }
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

Result<RankProcess> Start(const SpawnRequest& request, int rank, const std::string& job_id,
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
  setpgid(pid, pid);  // here too: whoever comes second finds it done
  RankProcess child;
  child.rank = rank;
  child.pid = pid;
  child.output_fd = output.TakeReader();
  child.error_fd = errors.TakeReader();
  return child;
}

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
  const MonotonicClock clock;
  // The clock makes the id of a job differ from that of an earlier process with the same number.
  const std::string job_id = fmt::format("{}-{}", getpid(), clock.now_ns());
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Result<RankProcess> started = Start(request, rank, job_id, signals);
    if (!started) {
      for (const RankProcess& each : ranks) kill(-each.pid, SIGKILL);
      for (const RankProcess& each : ranks) {
        waitpid(each.pid, nullptr, 0);
        for (const int fd : {each.output_fd, each.error_fd}) {
          if (fd >= 0) close(fd);
        }
      }
      return Propagate(started);
    }
    ranks.push_back(std::move(*started));
  }
  RankSupervisor supervisor(request, ranks, signals, clock);
  supervisor.Run();
  return supervisor.TakeResult();
}

}  // namespace cotune
