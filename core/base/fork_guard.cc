#include "core/base/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>

namespace cotune {
namespace {

// Held while a process forks, so that a child finds the list whole.
std::mutex fork_mutex;
HomeFd* first_fd = nullptr;  // under fork_mutex

}  // namespace

// The handlers of fork. In the child only calls that are safe in a signal handler are made: close,
// and the unlocking of a mutex that this very thread has locked.
struct ForkHandlers {
  static void Before() { fork_mutex.lock(); }
  static void InParent() { fork_mutex.unlock(); }
  static void InChild() {
    HomeFd::CloseAll();
    HomeProcess::forks.fetch_add(1, std::memory_order_relaxed);
    fork_mutex.unlock();
  }
};

Status GuardForks() {
  static const int error =
      pthread_atfork(ForkHandlers::Before, ForkHandlers::InParent, ForkHandlers::InChild);
  if (error == 0) return {};
  return Fail(ErrorCode::kEnvironment, "the handlers of fork cannot be registered", "",
              std::generic_category().message(error), "free some memory");
}

HomeProcess::HomeProcess() : forks_(forks.load(std::memory_order_relaxed)) {}

Status HomeProcess::Check() const {
  if (IsHere()) return {};
  return Fail(ErrorCode::kUsage, "this process was forked from the one that made the group", "",
              "a forked child has neither the connection to the other ranks nor the threads of its "
              "parent",
              "make a group in the child, or make the call in the parent");
}

HomeFd::NoFork::NoFork() { fork_mutex.lock(); }
HomeFd::NoFork::~NoFork() { fork_mutex.unlock(); }

HomeFd::HomeFd(int fd, const NoFork&) : fd_(fd) { Link(); }

HomeFd::HomeFd(HomeFd&& other) noexcept {
  const NoFork no_fork;
  TakeOver(other);
}

HomeFd& HomeFd::operator=(HomeFd&& other) noexcept {
  if (this == &other) return *this;
  const NoFork no_fork;
  Unlink();
  if (fd_ >= 0) close(fd_);
  TakeOver(other);
  return *this;
}

HomeFd::~HomeFd() {
  const NoFork no_fork;
  Unlink();
  if (fd_ >= 0) close(fd_);
}

void HomeFd::TakeOver(HomeFd& other) {
  other.Unlink();
  fd_ = other.fd_;
  other.fd_ = -1;
  Link();
}

void HomeFd::Link() {
  if (fd_ < 0) return;
  before_ = nullptr;
  next_ = first_fd;
  if (next_ != nullptr) next_->before_ = this;
  first_fd = this;
}

// An empty one is not in the list; neither is one that was closed in a child.
void HomeFd::Unlink() {
  if (fd_ < 0) return;
  (before_ != nullptr ? before_->next_ : first_fd) = next_;
  if (next_ != nullptr) next_->before_ = before_;
  before_ = next_ = nullptr;
}

void HomeFd::CloseAll() {
  while (first_fd != nullptr) {
    HomeFd* const closed = first_fd;
    closed->Unlink();
    close(closed->fd_);
    closed->fd_ = -1;
  }
}

}  // namespace cotune
