// A loop whose turns threads share.
#ifndef COTUNE_CORE_BASE_PARALLEL_FOR_H_
#define COTUNE_CORE_BASE_PARALLEL_FOR_H_

#include <cstddef>
#include <functional>

namespace cotune {

// Calls turn(0) to turn(count - 1), each once and in no order, and returns when all calls have
// returned. At most `threads` threads make the calls, the calling one among them; fewer if the
// system has no room for so many, or if there are fewer than kTurnsOfThread turns for each. `turn`
// may be called by several threads at once, unless there is one. If it throws, no further turn
// begins, and the first exception is thrown here once all threads have ended.
inline constexpr size_t kTurnsOfThread = 4;
void ParallelFor(size_t count, size_t threads, const std::function<void(size_t)>& turn);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_PARALLEL_FOR_H_
