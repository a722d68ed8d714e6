#include "integration/plugin_scan.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "plugins/loader/load_plugin.h"

namespace cotune {

std::vector<std::string> DefaultPluginSearchPath(const Environment& environment) {
  std::vector<std::string> folders;
  if (const auto set = environment.find("COTUNE_PLUGIN_PATH"); set != environment.end()) {
    for (std::string_view rest = set->second; !rest.empty();) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) folders.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return folders;
  }
  Dl_info info{};
  link_map* object = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&DefaultPluginSearchPath), &info,
              reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) {
    return folders;
  }
  // The program itself has no name here: dli_fname is what it was called by, perhaps through PATH.
  const bool is_program = object == nullptr || object->l_name[0] == '\0';
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::canonical(is_program ? "/proc/self/exe" : info.dli_fname, error);
  if (error) return folders;
  const std::filesystem::path beside =
      self.parent_path().parent_path() / "lib" / "cotune" / "plugins";
  if (std::filesystem::is_directory(beside, error)) folders.push_back(beside.string());
  return folders;
}

PluginScan ScanPlugins(const std::vector<std::string>& named,
                       const std::vector<std::string>& search_path, CallWatchdog* watchdog) {
  PluginScan scan;
  std::vector<std::pair<std::string, bool>> files;  // path, named by the user
  const auto add_folder = [&](const std::string& folder, bool is_named) {
    const Result<std::vector<std::string>> listed = ListPlugins(folder);
    if (!listed) {
      if (is_named && !scan.failure) scan.failure = listed.error();
      scan.reports.push_back(PluginReport{folder, "", "", 0, 0, false, listed.error().ToText()});
      scan.reports.back().is_named = is_named;
      return;
    }
    for (const std::string& file : *listed) files.emplace_back(file, is_named);
  };
  for (const std::string& path : named) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      add_folder(path, true);
    } else {
      files.emplace_back(path, true);
    }
  }
  for (const std::string& folder : search_path) add_folder(folder, false);
  std::map<std::string, std::string> path_of_backend;
  std::set<std::string> seen;
  for (const auto& [path, is_named] : files) {
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(path, error);
    if (!error && !seen.insert(file.string()).second) continue;
    const Result<const cotune_backend_api_t*> table = LoadPlugin(path, watchdog);
    if (!table) {
      if (is_named && !scan.failure) scan.failure = table.error();
      scan.reports.push_back(PluginReport{path, "", "", 0, 0, false, table.error().ToText()});
      scan.reports.back().is_named = is_named;
      continue;
    }
    PluginReport report{
        path, (*table)->name, (*table)->version, (*table)->abi_minor, (*table)->memory_kinds, true,
        ""};
    report.is_named = is_named;
    const auto [first, is_first] = path_of_backend.emplace(report.backend, path);
    if (!is_first) {
      report.loaded = false;
      report.reason = fmt::format("its backend '{}' is that of {}, which comes before it",
                                  report.backend, first->second);
    } else {
      scan.tables.emplace_back(*table, path);
    }
    scan.reports.push_back(std::move(report));
  }
  return scan;
}

Error NoPluginFound(const std::vector<std::string>& search_path) {
  const std::string next_step =
      "name the folder that holds cotune_host.so by COTUNE_PLUGIN_PATH or the setting plugin_path";
  if (search_path.empty()) {
    return {ErrorCode::kEnvironment,
            "no plugin was found",
            "",
            "no folder lib/cotune/plugins lies beside the folder of cotune",
            next_step,
            {}};
  }
  return {ErrorCode::kEnvironment,
          "no plugin was found",
          fmt::format("{}", fmt::join(search_path, ":")),
          fmt::format("{} no shared library of a plugin, such as cotune_host.so",
                      search_path.size() == 1 ? "this folder holds" : "these folders hold"),
          next_step,
          {}};
}

}  // namespace cotune
