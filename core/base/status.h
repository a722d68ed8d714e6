// Errors as values. Every stage returns Result<T>; nothing is thrown across a stage or ABI border.
#ifndef COTUNE_CORE_BASE_STATUS_H_
#define COTUNE_CORE_BASE_STATUS_H_

#include <string>
#include <utility>
#include <vector>

#include "tl/expected.hpp"

namespace cotune {

// The kind of a failure; each maps to one documented exit code (see ExitCode).
enum class ErrorCode {
  kInternal,       // a broken invariant of cotune itself
  kUsage,          // a flag, setting, size text or name that the user gave
  kEnvironment,    // the machine cannot do it: library, device, permission, memory
  kUnsupported,    // an answer, not a failure: this choice cannot run this program
  kWrongResult,    // a choice computed wrong values
  kRankLost,       // a rank died, stopped or came late; `ranks` names it
  kDeadline,       // time ran out and no rank is known to be at fault
  kAborted,        // the group was aborted on purpose
  kDatabase,       // a tuned database cannot be used: corrupt, foreign, newer
  kPluginRefused,  // a plugin failed a step of loading
  kInterrupted,    // the user asked to stop; what was measured is saved
  kDisagreement,   // all ranks answered and differ; nothing changed on any; `ranks` names the odd
                   // ones
};

// One failure, as the user reads it: what happened, where, the likely cause and the next step.
// Fields that do not apply stay empty; `what` never does.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string what;
  std::string where;       // rank, file, field, backend or stage
  std::string cause;       // likely cause
  std::string next_step;   // what the user can do
  std::vector<int> ranks;  // ranks in the job that are at fault, ascending

  // One line: "what (where): cause; next step".
  std::string ToText() const;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Shorthand for `return Fail(ErrorCode::kUsage, "...", ...)`.
inline tl::unexpected<Error> Fail(ErrorCode code, std::string what, std::string where = "",
                                  std::string cause = "", std::string next_step = "",
                                  std::vector<int> ranks = {}) {
  return tl::make_unexpected(Error{code, std::move(what), std::move(where), std::move(cause),
                                   std::move(next_step), std::move(ranks)});
}

// Assigns the value of `expression`, a Result, to `declaration`, or returns its error from the
// function around it: `COTUNE_TRY(const Plan plan, Prepare(problem));`. It is two statements, so it
// stands in a block. A declaration whose type has a comma is written with `auto`.
#define COTUNE_TRY(declaration, ...) \
  COTUNE_TRY_AS(COTUNE_TRY_NAME(__LINE__), declaration, __VA_ARGS__)
#define COTUNE_TRY_AS(result, declaration, ...)                         \
  auto result = (__VA_ARGS__);                                          \
  if (!result) return ::tl::make_unexpected(std::move(result).error()); \
  declaration = *std::move(result)
#define COTUNE_TRY_NAME(line) COTUNE_TRY_JOIN(result_of_line_, line)
#define COTUNE_TRY_JOIN(name, line) name##line

// Returns the error of a Result or Status from the function around it, if it has one.
#define COTUNE_RETURN_IF_ERROR(...) \
  COTUNE_RETURN_IF_ERROR_AS(COTUNE_TRY_NAME(__LINE__), __VA_ARGS__)
#define COTUNE_RETURN_IF_ERROR_AS(result, ...) \
  if (const auto& result = (__VA_ARGS__); !result) return ::tl::make_unexpected(result.error())

// Hands the error of a result on to the caller: `return Propagate(opened)`. The result
// must have failed. COTUNE_TRY and COTUNE_RETURN_IF_ERROR test and return in one line.
template <typename T>
tl::unexpected<Error> Propagate(const Result<T>& failed) {
  return tl::make_unexpected(failed.error());
}

// Name of the code as written in messages and JSON, for example "rank_lost".
const char* ErrorCodeName(ErrorCode code);

// Process exit code: 1 internal, 2 usage, 3 environment, 4 wrong results, 5 rank lost, deadline or
// disagreement, 7 database, 8 plugin refused, 130 interrupted.
int ExitCode(ErrorCode code);

// Tells whether a collective call that ended with this code leaves it open what the other ranks
// have done. If so, the group must not be used any more, because its ranks may have come to
// different tables.
bool LeavesDoubt(ErrorCode code);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_STATUS_H_
