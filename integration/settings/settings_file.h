// The settings file: "key = value" lines, one a setting, and [backend] sections.
#ifndef COTUNE_INTEGRATION_SETTINGS_SETTINGS_FILE_H_
#define COTUNE_INTEGRATION_SETTINGS_SETTINGS_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace cotune {

struct SettingsFileEntry {
  int line = 0;         // from 1
  std::string section;  // "" before the first [section]
  std::string key;
  std::string value;
};

// The part of TOML that settings need: comments after '#', [section], key = value, where a value is
// a bare word, a number or a "quoted" or 'quoted' string on one line. kUsage names path and line.
// (CLI11's reader is not used here: it loses the line numbers that every message needs.)
Result<std::vector<SettingsFileEntry>> ParseSettingsFile(std::string_view content,
                                                         std::string_view path);

// Reads and parses. kUsage when the file cannot be read or is larger than 1 MiB.
Result<std::vector<SettingsFileEntry>> ReadSettingsFile(const std::string& path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_SETTINGS_FILE_H_
