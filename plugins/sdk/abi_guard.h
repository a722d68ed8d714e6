// The checks and conversions that every backend needs at the C ABI: exceptions end here, texts are
// cut to fit, arrays have the caller's stride.
#ifndef COTUNE_PLUGINS_SDK_ABI_GUARD_H_
#define COTUNE_PLUGINS_SDK_ABI_GUARD_H_

#include <cxxabi.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

// Runs `body` (Result<void>()) and writes its failure into *error. No exception crosses the ABI but
// the one by which a thread is cancelled: the C library ends the process when that one is caught.
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
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return Report(
        {COTUNE_INTERNAL, 0, -1, std::string(backend) + ": an exception that is no std::exception"},
        error);
  }
}

template <size_t kSize>
void CopyText(const std::string& text, char (&to)[kSize]) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// An entry of list_choices. `flags` and `numerics` (as in the ABI) count for a choice that can run;
// a `reason` refuses the choice.
cotune_choice_t ChoiceEntry(const std::string& name, const std::string& reason, double cost_us,
                            uint32_t flags, const std::string& numerics = "");

// The entries of choices of a backend's own type, which has name, reason, cost_us and is_default;
// numerics may be left out, as it is in backends of an older version: the class is unknown then;
// and so may workspace_bytes, which is 0 then, and fits_any_region, which a choice that runs
// regions may have. `flags` are those of every choice that can run, COTUNE_CHOICE_DEFAULT excepted.
template <class Choice>
std::vector<cotune_choice_t> ChoiceEntries(const std::vector<Choice>& choices, uint32_t flags) {
  std::vector<cotune_choice_t> entries;
  for (const Choice& choice : choices) {
    const uint32_t is_default = choice.is_default ? uint32_t{COTUNE_CHOICE_DEFAULT} : 0;
    std::string numerics;
    if constexpr (requires { choice.numerics; }) numerics = choice.numerics;
    uint32_t own_flags = is_default;
    if constexpr (requires { choice.fits_any_region; }) {
      if (choice.fits_any_region) own_flags |= COTUNE_CHOICE_FITS_ANY_REGION;
    }
    entries.push_back(
        ChoiceEntry(choice.name, choice.reason, choice.cost_us, flags | own_flags, numerics));
    if constexpr (requires { choice.workspace_bytes; }) {
      entries.back().workspace_bytes = choice.workspace_bytes;
    }
  }
  return entries;
}

// Writes a C string that is cut to fit. COTUNE_INVALID_ARGUMENT for a buffer without room for its
// end.
Result<void> WriteText(const std::string& text, char* to, uint32_t capacity);

// The tail of list_choices: as many entries as fit at the caller's stride, and how many there are.
// COTUNE_INVALID_ARGUMENT for a buffer that cannot be written to.
Result<void> WriteChoices(std::span<const cotune_choice_t> choices, cotune_choice_t* first,
                          uint32_t stride, uint32_t capacity, uint32_t* count);

// Whether a backend can be created: the services of version 1.0 are there, and a backend of host
// memory is not asked for a device.
Result<void> CheckHost(const cotune_host_t& host, bool has_device, int32_t device);

// Whether a group can be made at all: 1.0's fields are there, the rank is in the group, the name
// fits, the world is not larger than ranks_max, and the device is that of the backend.
Result<void> CheckGroupParams(const cotune_group_params_t& params, int ranks_max, int32_t device);
// COTUNE_UNSUPPORTED for a group whose ranks are on several hosts, for backends that need one.
Result<void> CheckOneHost(const cotune_group_params_t& params);

// Whether a problem is one of a group's.
Result<void> CheckWorldSize(int problem_ranks, int group_ranks);

// The kind of stream that operations on a kind of memory are launched on.
constexpr uint32_t StreamKindFor(uint32_t memory_kind) {
  return memory_kind == COTUNE_MEMORY_CUDA ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
}
Result<void> WrongStreamKind(const cotune_launch_t& launch, uint32_t memory_kind);

// The answer of plans whose operations are complete when their stream is.
Result<void> NothingToProgress();

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
