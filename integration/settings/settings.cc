#include "integration/settings/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/base/nearest_name.h"
#include "core/problem/choice_id.h"
#include "fmt/format.h"
#include "integration/settings/settings_file.h"

namespace cotune {
namespace {

// Variables that are no settings: how launchers, the Python package and tests on shared GPUs reach
// cotune.
constexpr std::array<std::string_view, 13> kOtherVariables = {
    "COTUNE_CONFIG",     "COTUNE_RANK",         "COTUNE_WORLD_SIZE",  "COTUNE_LOCAL_RANK",
    "COTUNE_JOB_ID",     "COTUNE_LOCAL_SIZE",   "COTUNE_SOCKET",      "COTUNE_LAUNCHER",
    "COTUNE_ERROR_PIPE", "COTUNE_NCCL_LIBRARY", "COTUNE_UCX_LIBRARY", "COTUNE_SHARED_GPUS",
    "COTUNE_LIBRARY"};

constexpr std::string_view kVariablePrefix = "COTUNE_";

std::string Variable(const SettingSources& sources, const std::string& name) {
  const auto found = sources.environment.find(name);
  return found == sources.environment.end() ? "" : found->second;
}

std::string DefaultSettingsFile(const SettingSources& sources) {
  std::string folder = Variable(sources, "XDG_CONFIG_HOME");
  // A relative folder would be another one in each folder that cotune is started in.
  if (!folder.starts_with('/')) folder = Variable(sources, "HOME") + "/.config";
  if (!folder.starts_with('/') || folder == "/.config") return "";
  const std::string path = folder + "/cotune/config.toml";
  return access(path.c_str(), F_OK) == 0 ? path : "";
}

Status Assign(const SettingSpec& spec, std::string_view text, const std::string& origin,
              ResolvedSettings& resolved) {
  Status assigned = AssignSetting(spec, text, origin, resolved.values);
  if (assigned) resolved.origins[std::string(spec.name)] = origin;
  return assigned;
}

// Keeps "NAME.key" for the backend of that name.
Status AssignBackend(const std::string& backend, const std::string& key, std::string value,
                     const std::string& origin, ResolvedSettings& resolved) {
  // A choice id with these parts checks the grammar of both.
  if (!ChoiceId::FromBackend(backend, key) || key.find('?') != std::string::npos) {
    return Fail(ErrorCode::kUsage,
                fmt::format("\"{}.{}\" is not a setting of a backend", backend, key), origin,
                "a backend's setting is named BACKEND.KEY in lower case",
                "write for example host.slot_bytes=1M");
  }
  const std::string name = backend + "." + key;
  resolved.backend_values[name] = std::move(value);
  resolved.backend_origins[name] = origin;
  return {};
}

std::vector<std::string_view> SettingNames() {
  std::vector<std::string_view> names;
  for (const SettingSpec& spec : AllSettings()) names.push_back(spec.name);
  return names;
}

Status ApplyFile(const SettingSources& sources, ResolvedSettings& resolved) {
  if (sources.settings_file) {
    resolved.settings_file = *sources.settings_file;
  } else {
    resolved.settings_file = Variable(sources, "COTUNE_CONFIG");
    if (resolved.settings_file.empty()) resolved.settings_file = DefaultSettingsFile(sources);
  }
  if (resolved.settings_file.empty()) return {};
  COTUNE_TRY(const auto entries, ReadSettingsFile(resolved.settings_file));
  std::map<std::string, int> first_lines;
  for (const SettingsFileEntry& entry : entries) {
    const std::string origin = fmt::format("{}:{}", resolved.settings_file, entry.line);
    const auto [first, is_new] =
        first_lines.try_emplace(entry.section + "." + entry.key, entry.line);
    if (!is_new) {
      return Fail(ErrorCode::kUsage,
                  fmt::format("\"{}\" stands twice in the settings file", entry.key), origin,
                  fmt::format("the first is in line {}", first->second), "keep one of them");
    }
    if (!entry.section.empty()) {
      Status assigned = AssignBackend(entry.section, entry.key, entry.value, origin, resolved);
      if (!assigned) return assigned;
      continue;
    }
    const SettingSpec* spec = FindSetting(entry.key);
    if (spec == nullptr) {
      return Fail(ErrorCode::kUsage, fmt::format("unknown setting \"{}\"", entry.key), origin,
                  KnownNamesText(entry.key, SettingNames()), "see `cotune config show`");
    }
    Status assigned = Assign(*spec, entry.value, origin, resolved);
    if (!assigned) return assigned;
  }
  return {};
}

// "did you mean COTUNE_WARM_TIMEOUT?" for COTUNE_WARM: a setting that holds the word, else the
// nearest one. The prefix, which all share, does not count, and variables that launchers set are no
// advice.
std::string VariableAdvice(std::string_view name) {
  const std::string_view typed = name.substr(kVariablePrefix.size());
  std::vector<std::string> known = {"CONFIG"};
  for (const SettingSpec& spec : AllSettings()) {
    known.push_back(VariableName(spec).substr(kVariablePrefix.size()));
  }
  constexpr size_t kWordMin = 3;
  std::string nearest;
  for (const std::string& candidate : known) {
    if (typed.size() >= kWordMin && candidate.find(typed) != std::string::npos) {
      nearest = candidate;
      break;
    }
  }
  if (nearest.empty()) {
    nearest = NearestName(typed, std::vector<std::string_view>(known.begin(), known.end()));
  }
  return nearest.empty() ? "no setting has a name like it; see `cotune config show`"
                         : fmt::format("did you mean {}{}?", kVariablePrefix, nearest);
}

Status ApplyEnvironment(const SettingSources& sources, ResolvedSettings& resolved) {
  std::vector<std::string> known(kOtherVariables.begin(), kOtherVariables.end());
  for (const SettingSpec& spec : AllSettings()) {
    known.push_back(VariableName(spec));
    const std::string text = Variable(sources, known.back());
    if (text.empty()) continue;
    Status assigned = Assign(spec, text, known.back(), resolved);
    if (!assigned) return assigned;
  }
  for (const auto& [name, value] : sources.environment) {
    if (!name.starts_with(kVariablePrefix) ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    resolved.warnings.push_back(
        fmt::format("unknown variable {} is ignored; {}", name, VariableAdvice(name)));
  }
  return {};
}

Status ApplyFlags(const SettingSources& sources, ResolvedSettings& resolved) {
  for (const auto& [name, text] : sources.flags) {
    const SettingSpec* spec = FindSetting(name);
    if (spec == nullptr) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("a flag sets \"{}\", which is no setting", name));
    }
    Status assigned = Assign(*spec, text, FlagName(*spec), resolved);
    if (!assigned) return assigned;
  }
  for (const std::string& text : sources.backend_flags) {
    const size_t equals = text.find('=');
    const size_t dot = text.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      return Fail(ErrorCode::kUsage, fmt::format("\"{}\" is not a setting of a backend", text),
                  "--set", "it is not of the form BACKEND.KEY=VALUE",
                  "write for example host.slot_bytes=1M");
    }
    Status assigned = AssignBackend(text.substr(0, dot), text.substr(dot + 1, equals - dot - 1),
                                    text.substr(equals + 1), "--set", resolved);
    if (!assigned) return assigned;
  }
  return {};
}

// Fewest and most rounds must fit; a default gives way to what the user set.
Status ReconcileRounds(ResolvedSettings& resolved) {
  SettingValues& values = resolved.values;
  if (values.min_rounds <= values.collective_benchmark_nruns) return {};
  std::string& least_origin = resolved.origins["min_rounds"];
  std::string& most_origin = resolved.origins["collective_benchmark_nruns"];
  if (least_origin == "default") {
    values.min_rounds = values.collective_benchmark_nruns;
    least_origin = "collective_benchmark_nruns";
    return {};
  }
  if (most_origin == "default") {
    values.collective_benchmark_nruns = values.min_rounds;
    most_origin = "min_rounds";
    return {};
  }
  return Fail(ErrorCode::kUsage,
              fmt::format("min_rounds is {}, more than collective_benchmark_nruns, {}",
                          values.min_rounds, values.collective_benchmark_nruns),
              fmt::format("{} and {}", least_origin, most_origin),
              "the fewest rounds cannot be more than the most", "change one of them");
}

}  // namespace

Result<ResolvedSettings> ResolveSettings(const SettingSources& sources) {
  ResolvedSettings resolved;
  for (const SettingSpec& spec : AllSettings()) {
    resolved.origins[std::string(spec.name)] = "default";
  }
  for (const auto apply : {ApplyFile, ApplyEnvironment, ApplyFlags}) {
    COTUNE_RETURN_IF_ERROR(apply(sources, resolved));
  }
  COTUNE_RETURN_IF_ERROR(ReconcileRounds(resolved));
  return resolved;
}

}  // namespace cotune
