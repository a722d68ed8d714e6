#include "integration/settings/setting_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <type_traits>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/settings/duration.h"
#include "integration/settings/size_list.h"

namespace cotune {
namespace {

constexpr double kMillisecond = 1e6;
constexpr double kSecond = 1e9;
constexpr double kHour = 3600 * kSecond;

using V = SettingValues;
constexpr std::array<SettingSpec, 27> kTable = {{
    {"collective_autotune_timeout", &V::collective_autotune_timeout_ns, kMillisecond, kHour,
     "longest one launch of one choice may take; past it the choice is dropped"},
    {"collective_benchmark_nruns", &V::collective_benchmark_nruns, 1, 10'000,
     "most rounds for one collective at one size"},
    {"collective_pre_sync_timeout", &V::collective_pre_sync_timeout_ns, kMillisecond, kHour,
     "window in which all ranks must arrive before anything is measured"},
    {"enable_collective_multitemplate", &V::enable_collective_multitemplate, 0, 0,
     "on: resolve all collectives at once (deferred); off: one by one (immediate)"},
    {"collective_multi_kernel_hints", &V::collective_multi_kernel_hints_bytes, 0, 0,
     "sizes to tune where a collective's size is not known in advance"},
    {"precompile_threads", &V::precompile_threads, 0, 1024,
     "threads that make choices ready; 0: the ranks of a host share its processors"},
    {"warm_timeout", &V::warm_timeout_ns, kMillisecond, 24 * kHour,
     "longest time for the ranks to prepare their choices before they measure"},
    {"budget", &V::budget_ns, 0, 1000 * kHour, "measuring stops after this long; 0: no limit"},
    {"min_rounds", &V::min_rounds, 1, 10'000,
     "fewest rounds for a choice that stays in the race; 8 or more give a 99 % interval"},
    {"noise_percent", &V::noise_percent, 0, 50,
     "the backend's default choice wins unless another is faster by more than this"},
    {"keep_unsteady", &V::keep_unsteady, 0, 0,
     "off: a size with unsteady times, or measured while other programs use the processors, is "
     "measured again, and then runs the default; on: its times are believed"},
    {"sample_time", &V::sample_ns, 0, kSecond,
     "calls are repeated until one sample takes this long; 0: 200us"},
    {"neighbour_pruning", &V::neighbour_pruning, 0, 0,
     "on: a choice that took at least twice as long as the winner at the sizes around one is not "
     "measured at it; off: all choices are measured at all sizes"},
    {"numerics", &V::numerics, 0, 0,
     "same: only choices that give the same bits race, and programs round every value to its "
     "dtype; "
     "any: results may differ in their last bits with what wins"},
    {"collective_fusion_enabled", &FusionRules::enabled, 0, 0,
     "on: forms of a program that run operations inside of its collectives race, too"},
    {"custom_op_fusion_types", &FusionRules::types, 0, kAllFusionTypes,
     "what may run inside of a collective: operations after it (epilogue), before it (prologue), "
     "or other collectives and rewrites (cross_subgraph)"},
    {"benchmark_collective_epilogue_fusion", &FusionRules::benchmarks_epilogues, 0, 0,
     "off: epilogue does not count in custom_op_fusion_types"},
    {"enable_recursive_fusion", &FusionRules::is_recursive, 0, 0,
     "off: a collective absorbs at most one operation on each side"},
    {"max_fusion_depth", &FusionRules::max_depth, 1, 8,
     "most operations that a collective absorbs on one side"},
    {"fusion_speedup_threshold", &FusionRules::speedup_threshold, 1, 10,
     "a fused form wins only if the fastest unfused one takes more than this many times as long"},
    {"force_choice", &V::force, 0, 0,
     "collectives that run a given choice, whatever was measured, such as "
     "all_reduce=host/ring?chunk=65536; at sizes where it is refused or not listed, they run what "
     "they would run without it; cotune.torch also reads custom operators of PyTorch from the "
     "list, such as lib::op=python/ring"},
    {"memory", &V::memory, 0, 0,
     "memory that the command line tunes: host, cuda, or auto: cuda where there are GPUs and a "
     "plugin for them; groups of programs that link cotune have that of their options"},
    {"plugin_path", &V::plugin_path, 0, 0,
     "folders with plugins, separated by ':'; empty: those beside cotune"},
    {"database", &V::database, 0, 0, "tuned database; empty: the default file of this machine"},
    {"load_database", &V::load_database, 0, 0,
     "on: groups of programs that link cotune run by the tuned database from the start"},
    {"exit_when_stuck", &V::exit_when_stuck, 0, 0,
     "on: a program that uses libcotune ends with code 5 when a call into a plugin never returns, "
     "as cotune's own processes always do"},
    {"check_calls", &V::check_calls, 0, 0,
     "on: calls that run by NCCL are compared between the ranks, as those of other backends always "
     "are"},
}};

constexpr std::array<SettingAlias, 3> kAliases = {{
    {"enable_custom_op_fusion", "collective_fusion_enabled"},
    {"max_autotune_gemm_threads", "precompile_threads"},
    {"force", "force_choice"},
}};

// The value of a member, in values or in their rules of fusion.
template <typename Value, typename Values>
auto& ValueOf(Value SettingValues::*member, Values& values) {
  return values.*member;
}
template <typename Value, typename Values>
auto& ValueOf(Value FusionRules::*member, Values& values) {
  return values.fusion.*member;
}

// Each Read gives what is wrong, or "" when *value is set.
std::string Read(std::string_view text, int64_t* value) {
  const Result<int64_t> duration_ns = ParseDurationNs(text);
  if (!duration_ns) return duration_ns.error().cause;
  *value = *duration_ns;
  return "";
}

constexpr std::string_view kNotANumber = "it is not a number";

template <typename Number>
std::string ReadNumber(std::string_view text, Number* value) {
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (status == std::errc::result_out_of_range) return "it is too large";
  if (status != std::errc() || rest != text.data() + text.size()) {
    return std::string(kNotANumber);
  }
  return "";
}
std::string Read(std::string_view text, int32_t* value) {
  double number = 0;
  const std::string wrong = ReadNumber(text, value);
  const bool has_fraction = wrong == kNotANumber && ReadNumber(text, &number).empty();
  return has_fraction ? "it is not a whole number" : wrong;
}
std::string Read(std::string_view text, double* value) { return ReadNumber(text, value); }

std::string Read(std::string_view text, bool* value) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  *value = lower == "1" || lower == "on" || lower == "true" || lower == "yes";
  if (*value || lower == "0" || lower == "off" || lower == "false" || lower == "no") return "";
  return "it is neither on nor off";
}

std::string Read(std::string_view text, std::vector<uint64_t>* value) {
  value->clear();
  if (text.empty()) return "";
  Result<std::vector<uint64_t>> sizes_bytes = ParseSizes(text);
  if (!sizes_bytes) return sizes_bytes.error().where + ": " + sizes_bytes.error().cause;
  *value = std::move(*sizes_bytes);
  return "";
}

std::string Read(std::string_view text, std::string* value) {
  *value = text;
  return "";
}

std::string Read(std::string_view text, NumericsRule* value) {
  for (const NumericsRule rule : {NumericsRule::kAny, NumericsRule::kSame}) {
    if (text != Name(rule)) continue;
    *value = rule;
    return "";
  }
  return "it is neither any nor same";
}

// Without those at both ends.
std::string_view WithoutSpaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Kinds of fusion: words between commas. No word and "none" are the empty set.
std::string Read(std::string_view text, uint8_t* value) {
  *value = 0;
  const std::string_view all = WithoutSpaces(text);
  if (all.empty() || all == "none") return "";
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = WithoutSpaces(text.substr(0, comma));
    const auto found = std::find_if(kFusionTypeNames.begin(), kFusionTypeNames.end(),
                                    [&](const auto& named) { return named.first == word; });
    if (found == kFusionTypeNames.end()) {
      return fmt::format("\"{}\" is none of the words", word);
    }
    *value |= static_cast<uint8_t>(found->second);
    if (comma == text.size()) return "";
    text.remove_prefix(comma + 1);
  }
}

std::string Read(std::string_view text, ForcedChoices* value) {
  Result<ForcedChoices> forced = ForcedChoices::Parse(text);
  if (!forced) {
    const Error& error = forced.error();
    return error.cause.empty() ? error.what : fmt::format("{}: {}", error.what, error.cause);
  }
  *value = *std::move(forced);
  return "";
}

std::string Format(int64_t value) { return FormatDurationNs(value); }
std::string Format(int32_t value) { return std::to_string(value); }
std::string Format(double value) { return fmt::format("{}", value); }
std::string Format(bool value) { return value ? "on" : "off"; }
std::string Format(const std::vector<uint64_t>& value) { return FormatSizes(value); }
std::string Format(const std::string& value) { return value; }
std::string Format(NumericsRule value) { return std::string(Name(value)); }
std::string Format(uint8_t value) { return FusionTypesText(value); }
std::string Format(const ForcedChoices& value) { return value.text(); }

// The words of TypeName by the type of the value.
constexpr std::string_view TypeNameOf(int64_t) { return "duration"; }
constexpr std::string_view TypeNameOf(int32_t) { return "whole number"; }
constexpr std::string_view TypeNameOf(bool) { return "on or off"; }
constexpr std::string_view TypeNameOf(double) { return "number"; }
constexpr std::string_view TypeNameOf(const std::vector<uint64_t>&) { return "sizes"; }
constexpr std::string_view TypeNameOf(const std::string&) { return "text"; }
constexpr std::string_view TypeNameOf(NumericsRule) { return "any or same"; }
constexpr std::string_view TypeNameOf(uint8_t) { return "words"; }
constexpr std::string_view TypeNameOf(const ForcedChoices&) { return "choices"; }

template <typename Value>
bool InLimits(const SettingSpec& spec, const Value& value) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    const double number = static_cast<double>(value);
    return number >= spec.minimum && number <= spec.maximum;  // false for NaN
  }
  return true;
}

}  // namespace

std::span<const SettingSpec> AllSettings() { return kTable; }

std::span<const SettingAlias> AllAliases() { return kAliases; }

const SettingSpec* FindSetting(std::string_view name) {
  const auto alias = std::find_if(kAliases.begin(), kAliases.end(),
                                  [&](const SettingAlias& each) { return each.name == name; });
  if (alias != kAliases.end()) name = alias->setting;
  const auto found = std::find_if(kTable.begin(), kTable.end(),
                                  [&](const SettingSpec& spec) { return spec.name == name; });
  return found == kTable.end() ? nullptr : &*found;
}

std::vector<std::string_view> AliasesOf(const SettingSpec& spec) {
  std::vector<std::string_view> names;
  for (const SettingAlias& alias : kAliases) {
    if (alias.setting == spec.name) names.push_back(alias.name);
  }
  return names;
}

std::string HelpText(const SettingSpec& spec) {
  const std::vector<std::string_view> aliases = AliasesOf(spec);
  if (aliases.empty()) return std::string(spec.help);
  return fmt::format("{} (also named {})", spec.help, fmt::join(aliases, ", "));
}

std::string VariableName(std::string_view name) {
  std::string text = "COTUNE_";
  for (const unsigned char letter : name) text += static_cast<char>(std::toupper(letter));
  return text;
}

std::string FlagName(std::string_view name) {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string_view TypeName(const SettingSpec& spec) {
  static const SettingValues values;
  return std::visit([](auto member) { return TypeNameOf(ValueOf(member, values)); }, spec.member);
}

std::string AllowedText(const SettingSpec& spec) {
  const std::string_view type = TypeName(spec);
  if (type == "duration") {
    return fmt::format("a duration from {} to {}, for example 500ms",
                       FormatDurationNs(static_cast<int64_t>(spec.minimum)),
                       FormatDurationNs(static_cast<int64_t>(spec.maximum)));
  }
  if (type == "sizes") return "sizes such as 1K:16M:x2 or 4K,1M";
  if (type == "choices") {
    return "collectives and their choices, such as "
           "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536";
  }
  if (type == "words") {
    return fmt::format("none, or words of {} with commas between them",
                       FusionTypesText(kAllFusionTypes, ", "));
  }
  if (type == "number" || type == "whole number") {
    return fmt::format("a {} from {} to {}", type, spec.minimum, spec.maximum);
  }
  return std::string(type);
}

Status AssignSetting(const SettingSpec& spec, std::string_view text, std::string_view where,
                     SettingValues& values, std::string_view alias) {
  const std::string wrong = std::visit(
      [&](auto member) -> std::string {
        auto value = ValueOf(member, values);
        std::string read = Read(text, &value);
        if (read.empty() && !InLimits(spec, value)) read = "it is outside the limits";
        if (read.empty()) ValueOf(member, values) = std::move(value);
        return read;
      },
      spec.member);
  if (wrong.empty()) return {};
  return Fail(ErrorCode::kUsage,
              fmt::format("bad value \"{}\" for {}", text, alias.empty() ? spec.name : alias),
              std::string(where), wrong, "give " + AllowedText(spec));
}

std::string FormatSetting(const SettingSpec& spec, const SettingValues& values) {
  return std::visit([&](auto member) { return Format(ValueOf(member, values)); }, spec.member);
}

}  // namespace cotune
