// A backend's C function table as a core::Backend.
#ifndef COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_
#define COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_

#include <memory>
#include <string>

#include "core/backend.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// Checks what a table says of itself before anything in it is called: size, required functions,
// name, version, sanitizers. kPluginRefused with the failing step; `where` is the plugin's path or
// "registered in the process".
Status CheckTable(const cotune_backend_api_t* table, const std::string& where);

// Makes the backend of a checked table. kUnsupported: it can run nothing on this machine; the text
// says why. kPluginRefused: create failed. The table and the host outlive the backend. `device`:
// CUDA ordinal or -1.
Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where);

// Sanitizers this code was built with, as COTUNE_BUILD_* bits.
uint32_t OwnBuildFlags();

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_
