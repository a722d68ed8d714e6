// Errors as values inside a backend, and their way into the ABI's error struct.
#ifndef COTUNE_PLUGINS_SDK_FAILURE_H_
#define COTUNE_PLUGINS_SDK_FAILURE_H_

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::sdk {

struct Failure {
  cotune_status_t status = COTUNE_INTERNAL;
  int native_code = 0;   // errno, or 0
  int failed_rank = -1;  // rank in the group that is at fault, -1 when unknown
  std::string message;   // one line: what, where, likely cause, next step
};

template <typename T>
using Result = tl::expected<T, Failure>;

inline tl::unexpected<Failure> Fail(cotune_status_t status, std::string message,
                                    int native_code = 0, int failed_rank = -1) {
  return tl::unexpected<Failure>(Failure{status, native_code, failed_rank, std::move(message)});
}

// The macros of core/base/status.h, to the letter; a file may see both.
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

// Hands the failure of a result on to the caller: `return Propagate(opened)`. The result
// must have failed.
template <typename T>
tl::unexpected<Failure> Propagate(const Result<T>& failed) {
  return tl::unexpected<Failure>(failed.error());
}

// Writes the failure into the caller's struct (may be null) and returns its status.
cotune_status_t Report(const Failure& failure, cotune_error_t* error);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_FAILURE_H_
