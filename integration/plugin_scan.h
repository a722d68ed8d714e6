// The plugins of this machine: which files are looked at, and what became of each.
#ifndef COTUNE_INTEGRATION_PLUGIN_SCAN_H_
#define COTUNE_INTEGRATION_PLUGIN_SCAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/base/status.h"
#include "integration/launch_context.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// A plugin that was looked at: loaded, or why not.
struct PluginReport {
  std::string path;  // "" for a backend registered in the process
  std::string backend;
  std::string version;
  uint32_t abi_minor = 0;
  uint32_t memory_kinds = 0;  // bits of the ABI
  bool loaded = false;
  std::string reason;  // why it is not loaded, or why it cannot be used on this machine
  // About how much device memory its group took; nullopt: it has none, or that is not measured.
  std::optional<uint64_t> group_bytes{};
  bool is_named = false;  // by the user: the file, or the folder that it is in
};

// Folders that are searched for plugins when the user says nothing: COTUNE_PLUGIN_PATH
// (colon-separated), else
// ../lib/cotune/plugins beside the binary or library that this code is in.
std::vector<std::string> DefaultPluginSearchPath(const Environment& environment);

// A scan gives tables with their paths, a report of every file, and the first failure of a plugin
// that was named.
struct PluginScan {
  std::vector<std::pair<const cotune_backend_api_t*, std::string>> tables;
  std::vector<PluginReport> reports;
  std::optional<Error> failure;
};
// Loads the plugins in `named` (files or folders), then those in the folders of the search path. Of
// two plugins of one backend the first counts, and the report of the second names both files. A
// file that is found again is looked at once. Local; needs no job. `watchdog` as in LoadPlugin.
PluginScan ScanPlugins(const std::vector<std::string>& named,
                       const std::vector<std::string>& search_path, CallWatchdog* watchdog);

// The error of a scan that found no plugin: it names the folders, and what was expected in them.
Error NoPluginFound(const std::vector<std::string>& search_path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_PLUGIN_SCAN_H_
