// Invariants of cotune's own code, checked in every build.
#ifndef COTUNE_CORE_BASE_CHECK_H_
#define COTUNE_CORE_BASE_CHECK_H_

#include <string_view>

namespace cotune {

// Writes place, condition and meaning to standard error and aborts the process. Any thread.
[[noreturn]] void CheckFailed(std::string_view condition, std::string_view meaning,
                              std::string_view file, int line);

}  // namespace cotune

// Ends the process when `condition` is false. Only for mistakes of the program itself, such as a
// call in the wrong state: going on would use memory that is not there, or measure the wrong thing.
// Whatever users, files, plugins or other ranks can cause is an Error instead. `meaning` says in a
// sentence what should hold. Not for code that is marked [hot].
#define COTUNE_CHECK(condition, meaning) \
  (static_cast<bool>(condition) ? void() \
                                : ::cotune::CheckFailed(#condition, meaning, __FILE__, __LINE__))

#endif  // COTUNE_CORE_BASE_CHECK_H_
