// Errors as values inside a backend, and their way into the ABI's error struct.
#ifndef COTUNE_PLUGINS_SDK_FAILURE_H_
#define COTUNE_PLUGINS_SDK_FAILURE_H_

#include <string>
#include <tl/expected.hpp>

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

// Hands the failure of a result on to the caller: `if (!opened) return Propagate(opened);`. The
// result must have failed.
template <typename T>
tl::unexpected<Failure> Propagate(const Result<T>& failed) {
  return tl::unexpected<Failure>(failed.error());
}

// Writes the failure into the caller's struct (may be null) and returns its status.
cotune_status_t Report(const Failure& failure, cotune_error_t* error);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_FAILURE_H_
