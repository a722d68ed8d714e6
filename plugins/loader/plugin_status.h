// Turns the statuses of plugins into errors.
#ifndef COTUNE_PLUGINS_LOADER_PLUGIN_STATUS_H_
#define COTUNE_PLUGINS_LOADER_PLUGIN_STATUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// An error for a plugin to fill: without a text, and naming no rank. What lies behind the first
// character of the text is left as it is, because every call makes one.
inline cotune_error_t EmptyError() {
  cotune_error_t error;
  error.struct_size = sizeof(error);
  error.native_code = 0;
  error.failed_rank = -1;
  error.reserved = 0;
  error.message[0] = '\0';
  error.message[sizeof(error.message) - 1] = '\0';
  return error;
}

// The message that the plugin left, or that there is none.
std::string TextOf(const cotune_error_t& error, const char* call);

// The failure of the plugin's function `call`. job_ranks: those of the group, to name the rank that
// failed; empty before there is a group.
tl::unexpected<Error> ToError(cotune_status_t status, const cotune_error_t& error, const char* call,
                              const std::string& backend, const std::vector<int32_t>& job_ranks);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_PLUGIN_STATUS_H_
