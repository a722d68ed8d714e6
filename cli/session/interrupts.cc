#include "cli/session/interrupts.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "cli/session/last_resort.h"
#include "core/base/status.h"
#include "integration/job_socket.h"
#include "integration/spawn.h"

namespace cotune::cli {
namespace {

enum class Phase : int { kBefore, kDuring, kAfter };

// A terminal's interrupt can come twice: from the terminal and from the process that started this
// one.
constexpr int kPatientInterrupts = 2;

// A signal handler may touch only these. The texts are complete before it is installed.
std::atomic<bool> interrupted{false};
std::atomic<int> interrupts{0};
std::atomic<Phase> phase{Phase::kBefore};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free);
bool speaks_for_job = false;
int done_file = -1;  // -1: nobody reads that this process ends by itself
std::string error_text;
std::string document_text;

void Say(int file, std::string_view text) {
  // There is nothing to be done where it fails.
  [[maybe_unused]] const ssize_t written = write(file, text.data(), text.size());
}

void OnInterrupt(int /*signal*/) {
  const int saved_errno = errno;
  interrupted.store(true, std::memory_order_relaxed);
  const int before = interrupts.fetch_add(1, std::memory_order_relaxed);
  const Phase now = phase.load(std::memory_order_relaxed);
  if (now == Phase::kBefore && speaks_for_job) {
    Say(STDERR_FILENO, error_text);
    Say(STDOUT_FILENO, document_text);
  }
  if (now == Phase::kDuring && before == kPatientInterrupts && speaks_for_job) {
    Say(STDERR_FILENO, "cotune: stopped at once: the cell that was being measured is lost\n");
  }
  if (now == Phase::kBefore || before >= kPatientInterrupts) {
    NoteUserStop();
    RemoveSocketInHandler();
    if (done_file >= 0) Say(done_file, {kDoneWord, sizeof(kDoneWord)});
    _exit(ExitCode(ErrorCode::kInterrupted));
  }
  if (now == Phase::kDuring && before == 0 && speaks_for_job) {
    Say(STDERR_FILENO,
        "cotune: stopping after the cell that is being measured; a third interrupt stops at "
        "once\n");
  }
  errno = saved_errno;
}

}  // namespace

void CatchInterrupts(bool speaks, int error_pipe, std::string early_error,
                     std::string early_document) {
  speaks_for_job = speaks;
  done_file = error_pipe;
  error_text = std::move(early_error);
  document_text = std::move(early_document);
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // nohup ignores it, so that the process outlives its terminal.
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

void BeginInterruptible() { phase.store(Phase::kDuring, std::memory_order_relaxed); }
void EndInterruptible() { phase.store(Phase::kAfter, std::memory_order_relaxed); }

const std::atomic<bool>& Interrupted() { return interrupted; }

}  // namespace cotune::cli
