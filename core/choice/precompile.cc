#include "core/choice/precompile.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/signal_stack.h"
#include "core/base/usable_processors.h"

namespace cotune {

std::vector<size_t> PrecompileOrder(size_t count, const PrecompileShare& share) {
  COTUNE_CHECK(share.rank >= 0 && share.rank < share.world_size, "a share belongs to a rank");
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

size_t DefaultPrecompileThreads(size_t usable, size_t of_machine, size_t ranks) {
  const size_t share = (of_machine + ranks - 1) / std::max<size_t>(ranks, 1);
  return std::clamp<size_t>(share, 1, std::max<size_t>(usable, 1));
}

// Compilers work in parallel in one process as well as in several, so that more threads than
// processors only take memory.
size_t PrecompileThreads(int32_t setting, const ProblemClass& cls) {
  if (setting > 0) return static_cast<size_t>(setting);
  const int32_t ranks = cls.ranks_per_node > 0 ? cls.ranks_per_node : cls.world_size;
  const int64_t of_machine = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  const std::string usable = UsableProcessors();
  return DefaultPrecompileThreads(CountDistinctProcessors({&usable, 1}),
                                  static_cast<size_t>(of_machine),
                                  static_cast<size_t>(std::max(ranks, 1)));
}

namespace {

// The state that the threads share; the last of them frees it, which may be one that was given up.
struct Work {
  std::vector<ChoiceCaller*> callers;        // in the order in which they are made ready
  std::vector<std::function<void()>> tasks;  // after the callers
  int64_t deadline_ns = 0;
  std::shared_ptr<PrepareNotes> notes;  // may be nullptr
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;     // of callers, and after them of tasks
  size_t running = 0;  // threads

  size_t count() const { return callers.size() + tasks.size(); }
};

void MakeReady(const Work& work, ChoiceCaller& caller) {
  if (work.notes != nullptr) work.notes->Begin(caller);
  // The caller remembers a failure and gives it again when it is asked to run.
  static_cast<void>(caller.Precompile(work.deadline_ns));
  if (work.notes != nullptr) work.notes->End(caller);
}

// Does what is left of the work, beside other threads.
void DoWork(Work& work) {
  std::unique_lock lock(work.mutex);
  while (work.next < work.count()) {
    const size_t at = work.next++;
    lock.unlock();
    if (at < work.callers.size()) {
      MakeReady(work, *work.callers[at]);
    } else {
      work.tasks[at - work.callers.size()]();
    }
    lock.lock();
  }
  --work.running;
  work.changed.notify_all();
}

// Nobody waits for a thread as such: one whose call never returns is left behind.
void StartThreads(const std::shared_ptr<Work>& work) {
  const size_t wanted = work->running;
  for (size_t i = 0; i < wanted; ++i) {
    try {
      std::thread([work] {
        const SignalStack handler_stack;
        DoWork(*work);
      }).detach();
    } catch (const std::system_error&) {
      // Those that could be started do the work of all; where there is none, this one does.
      std::unique_lock lock(work->mutex);
      if (i + 1 < wanted || work->running > 1) {
        --work->running;
        continue;
      }
      lock.unlock();
      DoWork(*work);
    }
  }
}

// Makes the callers ready in their order, runs the tasks, and returns when all are done, or when a
// call is stuck.
Status MakeAllReady(std::vector<ChoiceCaller*> callers, size_t threads, int64_t deadline_ns,
                    const CallWatchdog* watchdog, const std::shared_ptr<PrepareNotes>& notes,
                    const std::function<bool()>& is_asked_to_stop,
                    std::vector<std::function<void()>> tasks) {
  if (is_asked_to_stop && is_asked_to_stop()) return {};
  // How often to look whether a call is stuck or the user wants to stop.
  constexpr std::chrono::milliseconds kPoll(20);
  const auto work = std::make_shared<Work>();
  work->callers = std::move(callers);
  work->tasks = std::move(tasks);
  work->deadline_ns = deadline_ns;
  work->notes = notes;
  work->running = std::min(threads, work->count());
  StartThreads(work);
  std::unique_lock lock(work->mutex);
  while (work->running > 0) {
    if (is_asked_to_stop && is_asked_to_stop()) work->next = work->count();
    work->changed.wait_for(lock, kPoll);
    const Error* const stuck = watchdog == nullptr ? nullptr : watchdog->stuck();
    if (stuck == nullptr) continue;
    work->next = work->count();
    return tl::make_unexpected(*stuck);
  }
  return {};
}

}  // namespace

Status PrecompileAll(std::span<ChoiceCaller* const> callers, int32_t threads, int64_t deadline_ns,
                     const PrecompileShare& share, const CallWatchdog* watchdog,
                     const std::shared_ptr<PrepareNotes>& notes,
                     const std::function<bool()>& is_asked_to_stop,
                     std::vector<std::function<void()>> tasks) {
  std::vector<ChoiceCaller*> together;
  std::vector<ChoiceCaller*> alone;
  for (const size_t i : PrecompileOrder(callers.size(), share)) {
    if (callers[i]->choice().prepare_is_collective) continue;
    const bool is_suspect = notes != nullptr && notes->IsSuspect(*callers[i]);
    (is_suspect ? alone : together).push_back(callers[i]);
  }
  // The backend that compiles parts compiles its collectives as well, each of them for one or a few
  // callers. Callers of other backends need the parts alone, which are the same for all: at the
  // beginning, their threads would wait for the one that compiles a part.
  std::stable_partition(together.begin(), together.end(),
                        [](const ChoiceCaller* caller) { return caller->UsesPartBackend(); });
  const size_t wanted =
      callers.empty() ? 1 : PrecompileThreads(threads, callers.front()->problem().cls);
  if (Status ready = MakeAllReady(std::move(together), wanted, deadline_ns, watchdog, notes,
                                  is_asked_to_stop, std::move(tasks));
      !ready) {
    return ready;
  }
  return MakeAllReady(std::move(alone), 1, deadline_ns, watchdog, notes, is_asked_to_stop, {});
}

}  // namespace cotune
