#include "integration/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace cotune {
namespace {

// The handler writes here: a handler has no other way to learn the descriptor.
std::atomic<int> write_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int number) {
  const int error_before = errno;
  const auto word = static_cast<unsigned char>(number);
  // A full pipe holds thousands of signals that say the same.
  [[maybe_unused]] const ssize_t written = write(write_fd.load(), &word, sizeof(word));
  errno = error_before;
}

bool MayBeIgnored(int number) { return number == SIGHUP || number == SIGQUIT || number == SIGTSTP; }

}  // namespace

SignalPipe::SignalPipe() {
  if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) return;
  before_fd_ = write_fd.exchange(ends_[1]);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    sigaction(kNumbers[i], nullptr, &actions_before_[i]);
    const bool is_ignored = actions_before_[i].sa_handler == SIG_IGN;
    if (!is_ignored || !MayBeIgnored(kNumbers[i])) sigaction(kNumbers[i], &action, nullptr);
  }
}

SignalPipe::~SignalPipe() {
  if (ends_[0] < 0) return;
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    sigaction(kNumbers[i], &actions_before_[i], nullptr);
  }
  write_fd.store(before_fd_);
  close(ends_[0]);
  close(ends_[1]);
}

std::optional<int> SignalPipe::Read() {
  unsigned char word = 0;
  if (read(ends_[0], &word, sizeof(word)) != static_cast<ssize_t>(sizeof(word))) {
    return std::nullopt;
  }
  return word;
}

void SignalPipe::Block() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : kNumbers) sigaddset(&wanted, number);
  pthread_sigmask(SIG_BLOCK, &wanted, &mask_before_);
}

void SignalPipe::Unblock() { pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr); }

void SignalPipe::RestoreInChild() const {
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    struct sigaction action = actions_before_[i];
    // This process takes it although a shell has started it in the background, and passes it on: a
    // rank that ignored it would have to be waited for.
    if (action.sa_handler == SIG_IGN && !MayBeIgnored(kNumbers[i])) action.sa_handler = SIG_DFL;
    sigaction(kNumbers[i], &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

}  // namespace cotune
