// Why a call of this backend failed, on its way to the ABI's error struct.
#ifndef COTUNE_PLUGINS_FAKE_FAILURE_H_
#define COTUNE_PLUGINS_FAKE_FAILURE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "plugins/api/cotune_backend_v1.h"
#include "tl/expected.hpp"

namespace cotune::fake {

struct Failure {
  cotune_status_t status = COTUNE_INTERNAL;
  std::string text;
  int32_t failed_rank = -1;  // in the group
};

template <typename T>
using Result = tl::expected<T, Failure>;

inline tl::unexpected<Failure> Fail(cotune_status_t status, std::string text,
                                    int32_t failed_rank = -1) {
  return tl::make_unexpected(Failure{status, std::move(text), failed_rank});
}

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_FAILURE_H_
