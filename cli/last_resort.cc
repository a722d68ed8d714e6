#include "cli/last_resort.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "cli/json_output.h"
#include "core/launch_watchdog.h"
#include "core/tuning_journal.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

constexpr std::array<int, 5> kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// The handler touches these only. They are complete before it is installed.
int own_rank = 0;
int error_file = -1;    // of the error pipe, -1: standard error
std::string rank_text;  // "rank 1 " or ""
std::array<char, 4096> journal_path{};
std::atomic<bool> has_journal{false};

std::string_view NameOf(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
      return "SIGSEGV in";
    case SIGBUS:
      return "SIGBUS in";
    case SIGFPE:
      return "SIGFPE in";
    case SIGILL:
      return "SIGILL in";
    default:
      return "SIGABRT in";
  }
}

void Say(const RunningCall& call, int signal_number) {
  // One write: several ranks may crash at once. To the pipe each error ends with a zero byte.
  const bool is_pipe = error_file >= 0;
  const std::array<std::string_view, 9> parts = {
      is_pipe ? "" : "cotune: ",
      "error 5 (rank_lost): ",
      rank_text,
      "crashed: ",
      NameOf(signal_number),
      " ",
      call.function(),
      " of ",
      call.subject().text,
  };
  const std::string_view next =
      call.subject().choice.empty()
          ? "; leave the backend out, or report it to whoever ships the plugin"
          : "; run again: the next tune leaves the choice out";
  std::array<iovec, parts.size() + 2> pieces{};
  size_t count = 0;
  const auto add = [&](std::string_view part) {
    pieces[count++] = {const_cast<char*>(part.data()), part.size()};
  };
  for (const std::string_view part : parts) add(part);
  add(has_journal.load() || call.subject().choice.empty() ? next : "");
  add(is_pipe ? std::string_view("\0", 1) : "\n");
  [[maybe_unused]] const ssize_t written =
      writev(is_pipe ? error_file : STDERR_FILENO, pieces.data(), static_cast<int>(count));
}

void OnCrash(int signal_number) {
  const int saved_errno = errno;
  // The handler is not installed any more: a second crash, or the return, ends the process.
  if (const RunningCall* call = RunningCall::Current()) {
    const CallSubject& subject = call->subject();
    if (has_journal.load() && !subject.choice.empty()) {
      AppendBlame(journal_path.data(), {subject.problem_class, subject.bytes, subject.choice,
                                        own_rank, NameOf(signal_number), call->function()});
    }
    Say(*call, signal_number);
  }
  errno = saved_errno;
  std::raise(signal_number);
}

void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void CatchCrashes(int rank, int world_size, const Console& console) {
  own_rank = rank;
  error_file = console.error_pipe();
  rank_text = world_size > 1 ? fmt::format("rank {} ", rank) : "the process ";
  // A stack that has run over leaves no room for a handler; that of the thread that tunes gets one.
  constexpr size_t kStackBytes = 64 * 1024;
  static std::array<char, kStackBytes> stack;
  const stack_t handler_stack{stack.data(), 0, stack.size()};
  sigaltstack(&handler_stack, nullptr);
  struct sigaction action {};
  action.sa_handler = OnCrash;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal_number : kCrashSignals) sigaction(signal_number, &action, nullptr);
}

void NoteJournal(const std::string& path) {
  has_journal.store(false);
  if (path.empty() || path.size() >= journal_path.size()) return;
  std::copy(path.begin(), path.end(), journal_path.begin());
  journal_path[path.size()] = '\0';
  has_journal.store(true);
}

void EndStuck(const Error& error, const Console& console, bool is_first) {
  const std::string text = fmt::format("error {} ({}): {}", ExitCode(error.code),
                                       ErrorCodeName(error.code), error.ToText());
  if (console.error_pipe() >= 0) {
    WriteAll(console.error_pipe(), std::string_view(text.c_str(), text.size() + 1));
  } else {
    WriteAll(STDERR_FILENO, "cotune: " + text + "\n");
  }
  if (is_first && console.flags().json) {
    WriteAll(STDOUT_FILENO, ErrorJson(console.command(), error));
  }
  _exit(ExitCode(error.code));
}

}  // namespace cotune::cli
