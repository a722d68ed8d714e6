#include "core/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/signal_stack.h"

namespace cotune {

void ParallelFor(size_t count, size_t threads, const std::function<void(size_t)>& turn) {
  std::atomic<size_t> next = 0;
  const auto take_turns = [&] {
    for (size_t i = next++; i < count; i = next++) turn(i);
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
}

}  // namespace cotune
