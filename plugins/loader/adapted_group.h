// The group of a plugin as a core::BackendGroup, with its plans.
#ifndef COTUNE_PLUGINS_LOADER_ADAPTED_GROUP_H_
#define COTUNE_PLUGINS_LOADER_ADAPTED_GROUP_H_

#include <memory>

#include "core/backend/backend.h"
#include "plugins/loader/backend_extensions.h"
#include "plugins/loader/plugin_call.h"

namespace cotune {

// The object destroys the plugin's group at its end; its plans are destroyed before.
std::unique_ptr<BackendGroup> AdaptGroup(std::shared_ptr<const BackendContext> backend,
                                         const BackendExtensions& extensions,
                                         const GroupParameters& parameters, cotune_group_t* group);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_ADAPTED_GROUP_H_
