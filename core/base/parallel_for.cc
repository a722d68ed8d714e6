#include "core/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/signal_stack.h"

namespace cotune {

void ParallelFor(size_t count, size_t threads, const std::function<void(size_t)>& turn) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto take_turns = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) turn(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  };
  const size_t wanted = std::min(threads, count / kTurnsOfThread);
  std::vector<std::thread> others;
  others.reserve(wanted);
  while (others.size() + 1 < wanted) {
    try {
      others.emplace_back([&take_turns] {
        const SignalStack handler_stack;
        take_turns();
      });
    } catch (const std::system_error&) {
      break;  // the threads that there are make all calls
    }
  }
  take_turns();
  for (std::thread& other : others) other.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace cotune
