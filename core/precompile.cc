#include "core/precompile.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <numeric>
#include <random>
#include <thread>

namespace cotune {

std::vector<size_t> PrecompileOrder(size_t count, const PrecompileShare& share) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 shared(count);  // alike on all ranks
  std::shuffle(order.begin(), order.end(), shared);
  const auto rank = static_cast<size_t>(share.rank);
  const auto world_size = static_cast<size_t>(share.world_size);
  const auto begin = order.begin() + static_cast<std::ptrdiff_t>(count * rank / world_size);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(count * (rank + 1) / world_size);
  const auto others = order.begin() + (end - begin);
  std::rotate(order.begin(), begin, end);
  std::mt19937_64 own(rank);
  std::shuffle(others, order.end(), own);
  return order;
}

void PrecompileAll(std::span<ChoiceCaller* const> callers, int32_t threads, int64_t deadline_ns,
                   const PrecompileShare& share) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : cores;
  boost::asio::thread_pool pool(std::max<size_t>(1, std::min(wanted, callers.size())));
  for (const size_t i : PrecompileOrder(callers.size(), share)) {
    ChoiceCaller* const caller = callers[i];
    if (caller->choice().prepare_is_collective) continue;
    boost::asio::post(pool, [caller, deadline_ns] {
      // The caller remembers a failure and gives it again when it is asked to run.
      static_cast<void>(caller->Precompile(deadline_ns));
    });
  }
  pool.join();
}

}  // namespace cotune
