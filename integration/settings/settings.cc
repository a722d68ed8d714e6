#include "integration/settings/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/nearest_name.h"
#include "core/problem/choice_id.h"
#include "fmt/format.h"
#include "integration/settings/force_text.h"
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

// The settings so far, and what one source gave under each name and alias.
struct Resolution {
  struct Given {
    std::string value;
    std::string origin;
  };
  ResolvedSettings resolved;
  std::map<std::string, Given, std::less<>> given;  // by the source that is read
  bool takes_operators = true;                      // in force_choice, by the source that is read
};

// Sets the collectives of force_choice, and gives the text of its custom operators. The flags of a
// command may be those of a program that PyTorch runs in, and take operators; the options of a
// group do not, because nobody reads operators there.
Result<std::string> AssignForce(std::string_view name, std::string_view text,
                                const std::string& origin, bool takes_operators,
                                SettingValues& values) {
  const SettingSpec& spec = *FindSetting("force_choice");
  std::string next_step = "give " + AllowedText(spec);
  if (takes_operators) {
    next_step += ", or custom operators of PyTorch, such as lib::op=python/ring";
  }
  const Result<ForceText> split = SplitForce(text);
  if (!split) {
    const Error& wrong = split.error();
    return Fail(ErrorCode::kUsage, fmt::format("bad value \"{}\" for {}", text, name), origin,
                wrong.cause.empty() ? wrong.what : fmt::format("{}: {}", wrong.what, wrong.cause),
                std::move(next_step));
  }
  const std::string operators = split->OperatorsText();
  if (!takes_operators && !operators.empty()) {
    return Fail(ErrorCode::kUsage, fmt::format("{} has \"{}\"", spec.name, operators), origin,
                "a name with \"::\" is a custom operator of PyTorch, and a group runs none",
                "leave it out, or give it to cotune.torch: by the option force of "
                "cotune.torch.enable, the variable COTUNE_FORCE_CHOICE or the settings file");
  }
  if (Status assigned = AssignSetting(spec, split->collectives, origin, values, name); !assigned) {
    Error wrong = std::move(assigned.error());
    wrong.next_step = std::move(next_step);
    return tl::make_unexpected(std::move(wrong));
  }
  return operators;
}

// `name`: of the setting, or an alias.
Status Assign(const SettingSpec& spec, std::string_view name, std::string_view text,
              const std::string& origin, Resolution& resolution) {
  ResolvedSettings& resolved = resolution.resolved;
  if (spec.name == "force_choice") {
    COTUNE_TRY(resolved.forced_operators,
               AssignForce(name, text, origin, resolution.takes_operators, resolved.values));
  } else {
    COTUNE_RETURN_IF_ERROR(AssignSetting(spec, text, origin, resolved.values, name));
  }
  resolved.origins[std::string(spec.name)] = origin;
  resolution.given[std::string(name)] = {TextOfSetting(spec, resolved), origin};
  return {};
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
  for (const SettingAlias& alias : AllAliases()) names.push_back(alias.name);
  return names;
}

// The list of settings is long, so that it is given only if none is near.
std::string KnownSettingsText(std::string_view typed) {
  const std::vector<std::string_view> names = SettingNames();
  const std::string nearest = NearestName(typed, names);
  return nearest.empty() ? KnownNamesText(typed, names) : fmt::format("did you mean {}?", nearest);
}

Status ApplyFile(const SettingSources& sources, Resolution& resolution) {
  ResolvedSettings& resolved = resolution.resolved;
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
                  KnownSettingsText(entry.key), "see `cotune config show`");
    }
    COTUNE_RETURN_IF_ERROR(Assign(*spec, entry.key, entry.value, origin, resolution));
  }
  return {};
}

// "did you mean COTUNE_WARM_TIMEOUT?" for COTUNE_WARM: a setting that holds the word, else the
// nearest one. The prefix, which all share, does not count, and variables that launchers set are no
// advice.
std::string VariableAdvice(std::string_view name) {
  const std::string_view typed = name.substr(kVariablePrefix.size());
  std::vector<std::string> known = {"CONFIG"};
  for (const std::string_view setting : SettingNames()) {
    known.push_back(VariableName(setting).substr(kVariablePrefix.size()));
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

Status ApplyEnvironment(const SettingSources& sources, Resolution& resolution) {
  std::vector<std::string> known(kOtherVariables.begin(), kOtherVariables.end());
  for (const std::string_view name : SettingNames()) {
    known.push_back(VariableName(name));
    const std::string text = Variable(sources, known.back());
    if (text.empty()) continue;
    COTUNE_RETURN_IF_ERROR(Assign(*FindSetting(name), name, text, known.back(), resolution));
  }
  for (const auto& [name, value] : sources.environment) {
    if (!name.starts_with(kVariablePrefix) ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    resolution.resolved.warnings.push_back(
        fmt::format("unknown variable {} is ignored; {}", name, VariableAdvice(name)));
  }
  return {};
}

Status ApplyFlags(const SettingSources& sources, Resolution& resolution) {
  resolution.takes_operators = sources.flags_origin.empty();
  for (const auto& [name, text] : sources.flags) {
    const SettingSpec* spec = FindSetting(name);
    if (spec == nullptr) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("a flag sets \"{}\", which is no setting", name));
    }
    const std::string origin = sources.flags_origin.empty() ? FlagName(name) : sources.flags_origin;
    COTUNE_RETURN_IF_ERROR(Assign(*spec, name, text, origin, resolution));
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
                                    text.substr(equals + 1), "--set", resolution.resolved);
    if (!assigned) return assigned;
  }
  return {};
}

// A setting and its alias must not contradict each other in one source, because neither counts more
// than the other.
Status CheckAliases(const Resolution& resolution) {
  for (const SettingAlias& alias : AllAliases()) {
    const auto by_name = resolution.given.find(alias.setting);
    const auto by_alias = resolution.given.find(alias.name);
    if (by_name == resolution.given.end() || by_alias == resolution.given.end() ||
        by_name->second.value == by_alias->second.value) {
      continue;
    }
    return Fail(ErrorCode::kUsage,
                fmt::format("{} is {}, and its alias {} is {}", alias.setting,
                            by_name->second.value, alias.name, by_alias->second.value),
                fmt::format("{} and {}", by_name->second.origin, by_alias->second.origin),
                "both are names of one setting", "remove one of them, or give both one value");
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

std::string TextOfSetting(const SettingSpec& spec, const ResolvedSettings& resolved) {
  std::string text = FormatSetting(spec, resolved.values);
  if (spec.name != "force_choice" || resolved.forced_operators.empty()) return text;
  return text.empty() ? resolved.forced_operators : text + "," + resolved.forced_operators;
}

Status AssignForceOfGroup(std::string_view text, const std::string& origin, SettingValues& values) {
  const Result<std::string> operators = AssignForce("force", text, origin, false, values);
  return operators ? Status() : Propagate(operators);
}

Result<std::map<std::string, std::string>> ParseSettingLines(std::string_view text,
                                                             std::string_view where) {
  std::map<std::string, std::string> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Fail(ErrorCode::kUsage, fmt::format("\"{}\" is not a setting", line),
                  std::string(where), "it is not of the form NAME=VALUE",
                  "write for example collective_benchmark_nruns=20");
    }
    const std::string name(line.substr(0, equals));
    if (FindSetting(name) == nullptr) {
      return Fail(ErrorCode::kUsage, fmt::format("unknown setting \"{}\"", name),
                  std::string(where), KnownSettingsText(name), "see `cotune config show`");
    }
    if (!found.emplace(name, line.substr(equals + 1)).second) {
      return Fail(ErrorCode::kUsage, fmt::format("\"{}\" stands twice among the settings", name),
                  std::string(where), "", "keep one of them");
    }
  }
  return found;
}

Result<ResolvedSettings> ResolveSettings(const SettingSources& sources) {
  Resolution resolution;
  for (const SettingSpec& spec : AllSettings()) {
    resolution.resolved.origins[std::string(spec.name)] = "default";
  }
  for (const auto apply : {ApplyFile, ApplyEnvironment, ApplyFlags}) {
    COTUNE_RETURN_IF_ERROR(apply(sources, resolution));
    COTUNE_RETURN_IF_ERROR(CheckAliases(resolution));
    resolution.given.clear();
  }
  COTUNE_RETURN_IF_ERROR(ReconcileRounds(resolution.resolved));
  return std::move(resolution.resolved);
}

}  // namespace cotune
