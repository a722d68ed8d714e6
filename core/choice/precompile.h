// Solution A: choices are made ready in parallel.
#ifndef COTUNE_CORE_CHOICE_PRECOMPILE_H_
#define COTUNE_CORE_CHOICE_PRECOMPILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/choice/choice_caller.h"

namespace cotune {

// Which of the ranks that make the same callers ready this one is.
struct PrecompileShare {
  int rank = 0;
  int world_size = 1;
};

// Hears of each prepare on the thread that makes it, so that the next tune knows which choices were
// being made ready when the processes of this one vanished. Thread-safe; no call fails.
class PrepareNotes {
 public:
  virtual ~PrepareNotes() = default;
  // An earlier tune vanished while the choice was being made ready, perhaps beside others. It is
  // made ready alone, after all others, so that a second such end names it and no other.
  virtual bool IsSuspect(const ChoiceCaller& caller) = 0;
  virtual void Begin(const ChoiceCaller& caller) = 0;
  virtual void End(const ChoiceCaller& caller) = 0;
};

// 0..count - 1 in the order in which a rank makes them ready: its own share first, then those of
// the others, which it finds done when compiled code is kept for all (as plugins do on one machine)
// and otherwise helps with. Shares are even, and neighbours in the list, which often need the same
// kernel, are far apart; what is not its own comes in another order on every rank.
std::vector<size_t> PrecompileOrder(size_t count, const PrecompileShare& share);

// The default number of threads of a rank: the ranks of a machine together have about as many
// threads as the machine has processors, and none has more than the processors that it may use.
size_t DefaultPrecompileThreads(size_t usable, size_t of_machine, size_t ranks);

// The threads of a rank: the setting precompile_threads or, if that is 0, the default on this
// machine for groups of this shape.
size_t PrecompileThreads(int32_t setting, const ProblemClass& cls);

// Precompiles every caller whose prepare is local, on `threads` threads (0: as above), and returns
// when all are done. Callers that use the backend of the parts come first. Failures stay with their
// callers. Local: no other rank is involved. An error, that of the watchdog, when a call is stuck:
// its thread still uses its caller, and with it program and group, which must live as long as the
// process. `notes` may be nullptr. `is_asked_to_stop` is asked by the calling thread until it says
// true: then the calls that have begun come to their end, and no other begins. The threads run
// `tasks` after the last caller has begun, in their order; after an error, a thread may still run
// one.
Status PrecompileAll(std::span<ChoiceCaller* const> callers, int32_t threads, int64_t deadline_ns,
                     const PrecompileShare& share = {}, const CallWatchdog* watchdog = nullptr,
                     const std::shared_ptr<PrepareNotes>& notes = nullptr,
                     const std::function<bool()>& is_asked_to_stop = {},
                     std::vector<std::function<void()>> tasks = {});

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_PRECOMPILE_H_
