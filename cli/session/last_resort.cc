#include "cli/session/last_resort.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "cli/output/json_output.h"
#include "cli/output/results_file.h"
#include "core/backend/call_watchdog.h"
#include "core/database/tuning_journal.h"
#include "fmt/format.h"
#include "integration/job_socket.h"

namespace cotune::cli {
namespace {

constexpr std::array<int, 5> kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

constexpr std::string_view kReportPlugin =
    "leave the backend out, or report it to whoever ships the plugin";

// The handler reads these only, and those of a rank only while a plugin is called.
int own_rank = 0;
bool is_rank = false;
int error_file = -1;    // of the error pipe, -1: standard error
std::string rank_text;  // "rank 1 " or "the process "
std::string json_head;  // of an error document, up to its text; "": no JSON is wanted
std::string json_tail;  // behind the text
std::array<char, 4096> journal_path{};
std::string stop_record;  // of the journal
std::atomic<bool> has_journal{false};
std::atomic<bool> has_crashed{false};

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

void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// The words of what has happened.
std::array<std::string_view, 9> WordsOf(const RunningCall& call, int signal_number) {
  const bool aborts = &call.blamed() != &call.subject();
  return {rank_text,
          "crashed: ",
          NameOf(signal_number),
          " ",
          call.function(),
          " of ",
          call.subject().text,
          aborts ? ", which aborts " : "",
          aborts ? std::string_view(call.blamed().text) : std::string_view()};
}

// `has_blamed`: the journal says it too.
void Say(const RunningCall& call, int signal_number, bool has_blamed) {
  // One write: several ranks may crash at once. To the pipe each error ends with a zero byte.
  const bool is_pipe = error_file >= 0;
  const std::array<std::string_view, 9> words = WordsOf(call, signal_number);
  const bool is_of_choice = !call.blamed().choice.empty();
  std::array<iovec, words.size() + 5> pieces{};
  size_t count = 0;
  const auto add = [&](std::string_view part) {
    pieces[count++] = {const_cast<char*>(part.data()), part.size()};
  };
  add(is_pipe ? "" : "cotune: ");
  add("error 5 (rank_lost): ");
  for (const std::string_view part : words) add(part);
  if (!is_of_choice) {
    add("; ");
    add(kReportPlugin);
  } else if (has_blamed) {
    add("; run again: the next tune leaves the choice out");
  }
  add(is_pipe ? std::string_view("\0", 1) : "\n");
  [[maybe_unused]] const ssize_t written =
      writev(is_pipe ? error_file : STDERR_FILENO, pieces.data(), static_cast<int>(count));
}

// The error as the result of a process that is no rank, where JSON is wanted.
void SayAsJson(const RunningCall& call, int signal_number) {
  if (json_head.empty()) return;
  std::array<char, 4096> text{};
  size_t size = 0;
  for (const std::string_view part : WordsOf(call, signal_number)) {
    for (const char each : part) {
      if (size + 2 > text.size()) break;
      if (each == '"' || each == '\\') text[size++] = '\\';
      text[size++] = static_cast<unsigned char>(each) < ' ' ? ' ' : each;
    }
  }
  WriteAll(ResultsFile(), json_head);
  WriteAll(ResultsFile(), {text.data(), size});
  WriteAll(ResultsFile(), json_tail);
}

// The default action ends the process when the handler returns: until then the signal is blocked. A
// crash inside the handler ends it at once, as the handler blocks all of its signals.
void EndBySignal(int signal_number) {
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

// Whether another process has sent the signal. abort() and raise() send it from this one.
bool IsFromOutside(const siginfo_t& info) {
  const bool was_sent =
      info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE;
  return was_sent && info.si_pid != getpid();
}

void OnCrash(int signal_number, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  // Several threads of a plugin may crash at the same time. The first says it and ends the process;
  // the others must not end it before.
  while (has_crashed.exchange(true)) pause();
  const RunningCall* const call = IsFromOutside(*info) ? nullptr : RunningCall::Current();
  if (call != nullptr) {
    const CallSubject& subject = call->blamed();
    const bool has_blamed =
        has_journal.load() && !subject.choice.empty() &&
        AppendBlame(journal_path.data(), {subject.problem_class, subject.bytes, subject.choice,
                                          own_rank, NameOf(signal_number), call->function()});
    Say(*call, signal_number, has_blamed);
    if (!is_rank) {
      SayAsJson(*call, signal_number);
      _exit(ExitCode(ErrorCode::kRankLost));
    }
  }
  errno = saved_errno;
  EndBySignal(signal_number);
}

}  // namespace

void NoteRank(int rank, int world_size) {
  own_rank = rank;
  is_rank = true;
  if (world_size > 1) rank_text = fmt::format("rank {} ", rank);
}

void CatchCrashes(const Console& console) {
  error_file = console.error_pipe();
  rank_text = "the process ";
  if (console.flags().json) {
    constexpr char kText = '@';
    const std::string document = ErrorJson(
        console.command(), {ErrorCode::kRankLost, {kText}, "", "", std::string(kReportPlugin), {}});
    json_head = document.substr(0, document.find(kText));
    json_tail = document.substr(json_head.size() + 1);
  }
  // A stack that has run over leaves no room for a handler; that of the thread that tunes gets one.
  constexpr size_t kStackBytes = 64 * 1024;
  static std::array<char, kStackBytes> stack;
  const stack_t handler_stack{stack.data(), 0, stack.size()};
  sigaltstack(&handler_stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnCrash;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  for (const int signal_number : kCrashSignals) sigaddset(&action.sa_mask, signal_number);
  for (const int signal_number : kCrashSignals) sigaction(signal_number, &action, nullptr);
}

void NoteJournal(const std::string& path) {
  has_journal.store(false);
  if (path.empty() || path.size() >= journal_path.size()) return;
  std::copy(path.begin(), path.end(), journal_path.begin());
  journal_path[path.size()] = '\0';
  stop_record = EncodeJournalRecord(JournalAttempt());
  has_journal.store(true);
}

void NoteUserStop() {
  if (has_journal.load()) AppendStop(journal_path.data(), stop_record);
}

void EndStuck(const Error& error, const Console& console, bool is_first) {
  const std::string text = fmt::format("error {} ({}): {}", ExitCode(error.code),
                                       ErrorCodeName(error.code), error.ToText());
  if (error.code == ErrorCode::kInterrupted) NoteUserStop();
  if (console.error_pipe() >= 0) {
    WriteAll(console.error_pipe(), std::string_view(text.c_str(), text.size() + 1));
  } else {
    WriteAll(STDERR_FILENO, "cotune: " + text + "\n");
  }
  if (is_first && console.flags().json) {
    WriteAll(ResultsFile(), ErrorJson(console.command(), error));
  }
  RemoveSocketInHandler();
  _exit(ExitCode(error.code));
}

}  // namespace cotune::cli
