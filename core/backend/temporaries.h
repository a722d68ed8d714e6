// The memory for values between the steps of programs.
#ifndef COTUNE_CORE_BACKEND_TEMPORARIES_H_
#define COTUNE_CORE_BACKEND_TEMPORARIES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/captured_memory.h"
#include "core/backend/device.h"
#include "core/base/status.h"
#include "core/problem/tuning_settings.h"

namespace cotune {

class RecipeSource;  // core/recipe

// One for all plans of a group: calls of a group never overlap, so that their plans share it. It
// belongs to the job and not to a plan, because a captured graph still uses its addresses when the
// plan is gone. Take: any thread.
class Temporaries {
 public:
  // The device outlives it.
  explicit Temporaries(Device& device) : device_(device) {}
  // Memory that a graph uses which still lives is left to the process.
  ~Temporaries();
  Temporaries(const Temporaries&) = delete;
  Temporaries& operator=(const Temporaries&) = delete;

  // Memory of at least so many bytes, aligned to 256; nullptr for 0. It never moves and is not
  // freed while the object lives. kEnvironment: there is no memory left.
  Result<std::byte*> Take(uint64_t bytes);
  // All that it holds.
  uint64_t bytes() const;
  // A call that uses it is about to be enqueued on the stream. By the thread of the calls.
  void NoteCall(void* stream);

 private:
  Device& device_;
  GraphUses uses_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceBuffer>> blocks_;  // ascending by size
};

// Programs with several steps need these beside the groups of their collectives. All of it outlives
// the plans.
struct ProgramSupport {
  Backend* part_backend = nullptr;        // runs the parts; nullptr: no backend has any
  Temporaries* temporaries = nullptr;     // nullptr: there is none
  bool rounds_values = false;             // as in PartRequest
  const RecipeSource* recipes = nullptr;  // the job's; nullptr: only single collectives can run
  FusionRules fusion{};                   // for the lists of choices
  int32_t rank = 0;                       // in the group; BackendGroups sets it
};

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_TEMPORARIES_H_
