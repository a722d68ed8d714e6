#include "core/base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(ParallelForTest, TakesEachTurnOnce) {
  for (const size_t count : {0, 1, 3, 4, 5, 100, 1000}) {
    for (const size_t threads : {0, 1, 2, 8}) {
      std::vector<std::atomic<int>> turns(count);
      ParallelFor(count, threads, [&](size_t i) { ++turns.at(i); });
      EXPECT_TRUE(std::all_of(turns.begin(), turns.end(), [](const auto& n) { return n == 1; }))
          << count << " turns on " << threads << " threads";
    }
  }
}

TEST(ParallelForTest, TakesTurnsOnSeveralThreadsAtOnce) {
  // No turn returns before three threads have one each.
  std::latch all_have_begun(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  ParallelFor(3 * kTurnsOfThread, 3, [&](size_t) {
    const bool is_first_of_thread = [&] {
      const std::lock_guard lock(mutex);
      return ids.insert(std::this_thread::get_id()).second;
    }();
    if (is_first_of_thread) all_have_begun.arrive_and_wait();
  });
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
}

TEST(ParallelForTest, AnExceptionOfATurnIsThrownWhenAllThreadsHaveEnded) {
  for (const size_t threads : {1, 4}) {
    std::atomic<int> running = 0;
    std::atomic<int> turns = 0;
    const auto turn = [&](size_t i) {
      ++running;
      ++turns;
      const bool throws = i % 50 == 7;
      --running;
      if (throws) throw std::runtime_error("out of luck");
    };
    EXPECT_THROW(ParallelFor(100'000, threads, turn), std::runtime_error);
    EXPECT_EQ(running, 0);
    EXPECT_LT(turns, 100'000) << "no turn begins after it";
  }
}

TEST(ParallelForTest, StaysOnItsThreadIfThereIsOneOrLittleToDo) {
  const auto is_here = [here = std::this_thread::get_id()](size_t) {
    EXPECT_EQ(std::this_thread::get_id(), here);
  };
  ParallelFor(100, 1, is_here);
  ParallelFor(2 * kTurnsOfThread - 1, 8, is_here);
}

}  // namespace
}  // namespace cotune
