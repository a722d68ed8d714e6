#include "plugins/sdk/failure.h"

#include <algorithm>
#include <cstring>

namespace cotune::sdk {

cotune_status_t Report(const Failure& failure, cotune_error_t* error) {
  if (error == nullptr) return failure.status;
  if (COTUNE_HAS_FIELD(cotune_error_t, error, native_code))
    error->native_code = failure.native_code;
  if (COTUNE_HAS_FIELD(cotune_error_t, error, failed_rank))
    error->failed_rank = failure.failed_rank;
  if (COTUNE_HAS_FIELD(cotune_error_t, error, message)) {
    const size_t length = std::min(failure.message.size(), sizeof(error->message) - 1);
    std::memcpy(error->message, failure.message.data(), length);
    error->message[length] = '\0';
  }
  return failure.status;
}

}  // namespace cotune::sdk
