// Loads plugins: from a file to a checked function table. A plugin is never unloaded.
#ifndef COTUNE_PLUGINS_LOADER_LOAD_PLUGIN_H_
#define COTUNE_PLUGINS_LOADER_LOAD_PLUGIN_H_

#include <string>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/base/status.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// The steps, each with its own kPluginRefused: absolute path; a regular file that may be read;
// owned by root or the user and writable by nobody else, it and the folders on the way (a folder
// may be sticky, as /tmp is, or writable by the user's own group); dlopen; the symbol; the query;
// CheckTable. The table lives as long as the process. One thread. What runs code of the plugin
// (dlopen, which runs its constructors, and the query) is watched; nullptr: by nobody.
Result<const cotune_backend_api_t*> LoadPlugin(const std::string& path, CallWatchdog* watchdog);

// The *.so files of a folder, ascending by name. kEnvironment when the folder cannot be read.
Result<std::vector<std::string>> ListPlugins(const std::string& folder);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_LOAD_PLUGIN_H_
