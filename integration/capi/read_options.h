// Options of the C API, whatever version of cotune.h the caller was built with.
#ifndef COTUNE_INTEGRATION_CAPI_READ_OPTIONS_H_
#define COTUNE_INTEGRATION_CAPI_READ_OPTIONS_H_

#include <cstdint>
#include <cstring>

#include "core/base/status.h"
#include "fmt/format.h"

namespace cotune::capi {

// The caller's struct, with zero in the fields that its version does not have; all zero for
// nullptr. kUsage when struct_size cannot be right. `name` is the struct's.
template <typename Options>
Result<Options> ReadOptions(const Options* given, const char* name) {
  Options options{};
  if (given == nullptr) return options;
  if (given->struct_size < sizeof(uint32_t) || given->struct_size > sizeof(options)) {
    return Fail(ErrorCode::kUsage, fmt::format("struct_size is {}", given->struct_size), name,
                "the struct was not initialised, or is of a newer cotune",
                fmt::format("set struct_size to sizeof, at most {}", sizeof(options)));
  }
  std::memcpy(&options, given, given->struct_size);
  return options;
}

// kUsage for a negative duration. `field` is its name, `zero` what 0 stands for.
inline Status CheckDuration(int64_t duration_ns, const char* field, const char* name,
                            const char* zero) {
  if (duration_ns >= 0) return {};
  return Fail(ErrorCode::kUsage, fmt::format("{} is {} ns", field, duration_ns), name,
              "a duration is not negative",
              fmt::format("give nanoseconds, for example 30000000000 for 30 s; 0 is {}", zero));
}

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_READ_OPTIONS_H_
