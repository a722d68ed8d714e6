// A backend's C function table as a core::Backend.
#ifndef COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_
#define COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/call_watchdog.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// Checks what a table says of itself before anything in it is called: size, required functions,
// name, version, sanitizers. kPluginRefused with the failing step; `where` is the plugin's path or
// "registered in the process".
Status CheckTable(const cotune_backend_api_t* table, const std::string& where);

struct AdoptOptions {
  // End the process when calls overlap that the ABI's thread tags keep apart.
#ifdef NDEBUG
  bool check_threads = false;
#else
  bool check_threads = true;
#endif
  // Watches every call into the plugin; outlives the backend. nullptr: nobody does.
  CallWatchdog* watchdog = nullptr;
};

// Makes the backend of a table, which is checked first; a table of the program itself needs no
// shared library. kUnsupported: it can run nothing on this machine; the text says why.
// kUsage: create refused what it was given, which is a setting or the device. kPluginRefused:
// CheckTable or create failed otherwise. What a plugin throws becomes an error that names it
// and the call, in the log for a call that gives nothing back. The table and `host` outlive the
// backend; the backend sees the settings of `host` under its own name ("NAME.key" as "key").
// `device`: CUDA ordinal or -1.
Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where,
                                              const AdoptOptions& options = {});

// Sanitizers this code was built with, as COTUNE_BUILD_* bits.
uint32_t OwnBuildFlags();

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_BACKEND_ADAPTER_H_
