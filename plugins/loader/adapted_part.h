// The part of a program, made by a plugin, as a core::Plan.
#ifndef COTUNE_PLUGINS_LOADER_ADAPTED_PART_H_
#define COTUNE_PLUGINS_LOADER_ADAPTED_PART_H_

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/loader/plugin_call.h"

namespace cotune {

// The object destroys the plugin's plan at its end. `extension` lives as long as the backend;
// `device` is a CUDA ordinal or -1.
std::unique_ptr<Plan> AdaptPart(std::shared_ptr<const BackendContext> backend,
                                const cotune_program_v1_t& extension,
                                std::unique_ptr<const CallSubject> subject,
                                cotune_program_plan_t* plan, MemoryKind memory, int32_t device);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_ADAPTED_PART_H_
