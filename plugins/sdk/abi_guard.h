// What every call of a backend's table does at the C ABI: exceptions end here, texts are cut to
// fit, arrays have the caller's stride.
#ifndef COTUNE_PLUGINS_SDK_ABI_GUARD_H_
#define COTUNE_PLUGINS_SDK_ABI_GUARD_H_

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

// Runs `body` (Result<void>()) and writes its failure into *error. No exception crosses the ABI:
// the only ones that a backend lets out are the standard library's, and of those lack of memory is
// the likely one.
template <class Body>
cotune_status_t Guard(const char* backend, cotune_error_t* error, Body body) {
  try {
    Result<void> result = body();
    return result ? COTUNE_OK : Report(result.error(), error);
  } catch (const std::bad_alloc&) {
    return Report({COTUNE_OUT_OF_RESOURCES, 0, -1, std::string(backend) + ": out of memory"},
                  error);
  } catch (const std::exception& e) {
    return Report({COTUNE_INTERNAL, 0, -1, std::string(backend) + ": " + e.what()}, error);
  }
}

template <size_t kSize>
void CopyText(const std::string& text, char (&to)[kSize]) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// The tail of list_choices: as many entries as fit at the caller's stride, and how many there are.
// COTUNE_INVALID_ARGUMENT for a buffer that cannot be written to.
Result<void> WriteChoices(std::span<const cotune_choice_t> choices, cotune_choice_t* first,
                          uint32_t stride, uint32_t capacity, uint32_t* count);

// Whether a group can be made at all: 1.0's fields are there, the rank is in the group, the name
// fits and the world is not larger than ranks_max.
Result<void> CheckGroupParams(const cotune_group_params_t& params, int ranks_max);

// cotune_backend_api_t.build_flags of the code that includes this.
constexpr uint32_t BuildFlags() {
  uint32_t flags = 0;
#if defined(__SANITIZE_ADDRESS__)
  flags |= COTUNE_BUILD_ASAN;
#endif
#if defined(__SANITIZE_THREAD__)
  flags |= COTUNE_BUILD_TSAN;
#endif
#if defined(COTUNE_UBSAN)
  flags |= COTUNE_BUILD_UBSAN;
#endif
  return flags;
}

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_ABI_GUARD_H_
