#include "plugins/host/futex_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "plugins/host/process_fence.h"

namespace cotune::host {

void FutexWord::SleepUnlessReached(uint32_t target, int64_t timeout_ns, WakeFence fence) {
  if (timeout_ns <= 0) return;
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec timeout = {.tv_sec = timeout_ns / kSecond, .tv_nsec = timeout_ns % kSecond};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (fence == WakeFence::kOfSleeper) FenceProcesses();
  const uint32_t seen = value_.load(std::memory_order_seq_cst);
  if (!HasReached(seen, target)) {
    // Not FUTEX_PRIVATE: the word is shared between processes. Every outcome (woken, changed,
    // interrupted, timed out) means the same to the caller: look again.
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAIT, seen, &timeout, nullptr,
            0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void FutexWord::WakeAll() {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

}  // namespace cotune::host
