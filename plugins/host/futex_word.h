// A number in shared memory that one side advances and other processes wait for.
#ifndef COTUNE_PLUGINS_HOST_FUTEX_WORD_H_
#define COTUNE_PLUGINS_HOST_FUTEX_WORD_H_

#include <atomic>
#include <cstdint>

namespace cotune::host {

// Numbers only grow and may wrap around: true when `value` is `target` or later.
constexpr bool HasReached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

// Either the storing or the sleeping side has the fence by which one of them sees the other; see
// process_fence.h.
enum class WakeFence { kOfStorer, kOfSleeper };

// Lives in memory that processes share; all bytes zero is a valid initial state. Any thread. Store
// and SleepUnlessReached of one word are given the same fence.
class FutexWord {
 public:
  uint32_t Load() const { return value_.load(std::memory_order_acquire); }

  // Stores a value that is later than the present one, and wakes the sleepers. One writer.
  void Store(uint32_t value, WakeFence fence) {
    if (fence == WakeFence::kOfSleeper) {
      value_.store(value, std::memory_order_release);
      // The compiler keeps the order; the processor does where a sleeper fences it.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_relaxed) != 0) WakeAll();
      return;
    }
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
  }

  // Adds one, wakes the sleepers when that made it `target`, and returns the new value. Any
  // writers.
  uint32_t AddOne(uint32_t target) {
    const uint32_t value = value_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (value == target && sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
    return value;
  }

  // Sleeps until the value has reached `target`, someone calls WakeAll, or about `timeout_ns` have
  // passed; may return early. The caller looks again.
  void SleepUnlessReached(uint32_t target, int64_t timeout_ns,
                          WakeFence fence = WakeFence::kOfStorer);

  void WakeAll();

 private:
  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(FutexWord) == 8);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_FUTEX_WORD_H_
