#include "core/precompile.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <thread>

namespace cotune {

void PrecompileAll(std::span<ChoiceCaller* const> callers, int32_t threads, int64_t deadline_ns) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : cores;
  boost::asio::thread_pool pool(std::max<size_t>(1, std::min(wanted, callers.size())));
  for (ChoiceCaller* caller : callers) {
    if (caller->choice().prepare_is_collective) continue;
    boost::asio::post(pool, [caller, deadline_ns] {
      // The caller remembers a failure and gives it again when it is asked to run.
      static_cast<void>(caller->Precompile(deadline_ns));
    });
  }
  pool.join();
}

}  // namespace cotune
