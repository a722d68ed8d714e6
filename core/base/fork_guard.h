// Keeps what belongs to one process out of the children that it forks.
//
// A child made by fork without exec (the workers of a data loader, for example) has a copy of all
// memory and descriptors, but only the thread that called fork. An object with a connection and
// threads of its own is of no use there, and an open copy of the connection keeps a dead parent
// looking alive. The handlers of fork have no argument, so what they act on is process-wide: one
// lock, one list of descriptors, one counter. Nothing else is kept here.
//
// Children made past the C library's fork (clone called directly) are not noticed.
#ifndef COTUNE_CORE_BASE_FORK_GUARD_H_
#define COTUNE_CORE_BASE_FORK_GUARD_H_

#include <atomic>
#include <cstdint>

#include "core/base/status.h"

namespace cotune {

// Registers the handlers with the C library, once in a process. kEnvironment when there is no
// memory for them. Objects below do their work only after it. Any thread.
Status GuardForks();

// Remembers the process in which it was made. Thread-safe.
class HomeProcess {
 public:
  HomeProcess();
  // False in a child that was forked later. A load and a comparison.
  bool IsHere() const { return forks_ == forks.load(std::memory_order_relaxed); }
  // kUsage in such a child: it must not use what belongs to its parent.
  Status Check() const;

 private:
  friend struct ForkHandlers;
  inline static std::atomic<uint64_t> forks{0};  // between this process and the first

  uint64_t forks_;
};

// A file descriptor that closes itself, and that forked children close at once. In a child it is
// not open; the descriptor's number may be another's there. Thread-safe against fork.
class HomeFd {
 public:
  HomeFd() = default;
  HomeFd(HomeFd&& other) noexcept;
  HomeFd& operator=(HomeFd&& other) noexcept;
  ~HomeFd();

  // Owns what `open` gives; a negative number is none. No fork happens meanwhile, so that no child
  // keeps a descriptor that it does not know. `open` does not wait.
  template <typename Open>
  static HomeFd Make(const Open& open) {
    const NoFork no_fork;
    return HomeFd(open(), no_fork);
  }

  int get() const { return fd_; }

 private:
  // While it lives, other threads' fork waits.
  class NoFork {
   public:
    NoFork();
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
    ~NoFork();
  };
  // Closes all descriptors of the list. In a child, where the caller is the only thread.
  static void CloseAll();
  friend struct ForkHandlers;

  HomeFd(int fd, const NoFork&);
  // With the lock held.
  void TakeOver(HomeFd& other);
  void Link();
  void Unlink();

  int fd_ = -1;
  HomeFd* before_ = nullptr;  // in the list of open ones
  HomeFd* next_ = nullptr;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_FORK_GUARD_H_
