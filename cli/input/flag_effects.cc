#include "cli/input/flag_effects.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "core/problem/problem.h"
#include "fmt/format.h"
#include "integration/settings/force_text.h"
#include "integration/settings/setting_table.h"

namespace cotune::cli {
namespace {

tl::unexpected<Error> NoEffect(std::string_view flag, std::string cause, std::string next_step) {
  return Fail(ErrorCode::kUsage, fmt::format("{} has no effect here", flag), std::string(flag),
              std::move(cause), std::move(next_step));
}

// Names that are not known are left to the command, which reports them.
bool MayReduce(const std::string& name) {
  const Result<Collective> collective = ParseCollective(name);
  return !collective || Reduces(*collective);
}

Status CheckReduction(const std::vector<std::string>& collectives,
                      const std::vector<std::string>& reductions) {
  if (reductions.empty() || collectives.empty()) return {};
  if (std::any_of(collectives.begin(), collectives.end(), MayReduce)) return {};
  const std::string verb = collectives.size() == 1 ? "does not reduce" : "and the others do not";
  return NoEffect("--reduction", fmt::format("{} {}", collectives.front(), verb),
                  "leave it out, or give all_reduce or reduce_scatter");
}

// The flags that select what is measured. Programs are read later, and checked there.
Status CheckProblems(const ProblemFlags& flags, const SettingFlags& settings) {
  COTUNE_RETURN_IF_ERROR(CheckReduction(flags.collectives, flags.reductions));
  const bool has_hints = settings.values.contains("collective_multi_kernel_hints");
  if (has_hints && flags.sizes) {
    return NoEffect("--collective-multi-kernel-hints", "--sizes names the sizes",
                    "give one of them");
  }
  if (has_hints && flags.rows && !flags.programs.empty() && flags.collectives.empty()) {
    return NoEffect("--collective-multi-kernel-hints", "--rows gives the size of the programs",
                    "leave one of them out, or add --collective");
  }
  return {};
}

struct CheckOf {
  Status operator()(const TuneFlags& flags) const {
    return CheckProblems(flags.problems, flags.settings);
  }
  Status operator()(const BenchFlags& flags) const {
    return CheckProblems(flags.problems, flags.settings);
  }
  Status operator()(const ExplainFlags& flags) const {
    if (flags.program.empty()) {
      if (flags.rows) {
        return NoEffect("--rows", "only programs have rows", "add --program FILE, or leave it out");
      }
      if (flags.collective.empty()) return {};
      std::vector<std::string> reductions;
      if (!flags.reduction.empty()) reductions.push_back(flags.reduction);
      return CheckReduction({flags.collective}, reductions);
    }
    const char* const cause = "the text of the program defines it";
    if (!flags.reduction.empty()) return NoEffect("--reduction", cause, "leave it out");
    if (flags.in_place) return NoEffect("--in-place", cause, "leave it out");
    return {};
  }
  Status operator()(const DbShowFlags& flags) const {
    if (flags.file.empty() || !flags.settings.values.contains("database")) return {};
    return NoEffect("--db", "FILE names the database", "give one of them");
  }
  template <typename Other>
  Status operator()(const Other&) const {
    return {};
  }
};

struct NamedUse {
  std::string_view setting;
  SettingUse use;
};

// One line for each setting of the table of settings.
constexpr std::array kUses = {
    NamedUse{"collective_autotune_timeout", SettingUse::kCalls},
    NamedUse{"collective_benchmark_nruns", SettingUse::kMeasuring},
    NamedUse{"collective_pre_sync_timeout", SettingUse::kMeasuring},
    NamedUse{"enable_collective_multitemplate", SettingUse::kMeasuring},
    NamedUse{"collective_multi_kernel_hints", SettingUse::kMeasuring},
    NamedUse{"precompile_threads", SettingUse::kMeasuring},
    NamedUse{"warm_timeout", SettingUse::kCalls},
    NamedUse{"budget", SettingUse::kMeasuring},
    NamedUse{"min_rounds", SettingUse::kMeasuring},
    NamedUse{"noise_percent", SettingUse::kMeasuring},
    NamedUse{"keep_unsteady", SettingUse::kMeasuring},
    NamedUse{"sample_time", SettingUse::kMeasuring},
    NamedUse{"neighbour_pruning", SettingUse::kPruning},
    NamedUse{"numerics", SettingUse::kForms},
    NamedUse{"collective_fusion_enabled", SettingUse::kForms},
    NamedUse{"custom_op_fusion_types", SettingUse::kForms},
    NamedUse{"benchmark_collective_epilogue_fusion", SettingUse::kForms},
    NamedUse{"enable_recursive_fusion", SettingUse::kForms},
    NamedUse{"max_fusion_depth", SettingUse::kForms},
    NamedUse{"fusion_speedup_threshold", SettingUse::kThreshold},
    NamedUse{"force_choice", SettingUse::kForcing},
    NamedUse{"memory", SettingUse::kPlugins},
    NamedUse{"plugin_path", SettingUse::kPlugins},
    NamedUse{"database", SettingUse::kDatabase},
    NamedUse{"load_database", SettingUse::kLinking},
    NamedUse{"exit_when_stuck", SettingUse::kLinking},
    NamedUse{"check_calls", SettingUse::kCheckingCalls},
};

// Why a command does not use a setting; "" if it does. Two commands use all of them: `run` passes
// them on, and `config show` prints them.
std::string_view WhyIdle(std::string_view command, SettingUse use) {
  const bool measures = command == "tune" || command == "bench";
  switch (use) {
    case SettingUse::kMeasuring:
      return measures ? "" : "this command measures nothing";
    case SettingUse::kPruning:
      if (command == "bench") return "every choice is measured";
      return command == "tune" ? "" : "this command measures nothing";
    case SettingUse::kCheckingCalls:
      return measures ? "" : "this command runs no collective";
    case SettingUse::kForms:
      return command == "plugin list" ? "this command lists no choices" : "";
    case SettingUse::kThreshold:
      if (command == "program recipes") return "this command lists every form, also slower ones";
      return command == "plugin list" ? "this command lists no choices" : "";
    case SettingUse::kForcing:
      if (command == "bench") return "every choice is measured";
      if (command == "tune" || command == "explain") return "";
      return "this command names no winner of a call";
    case SettingUse::kDatabase:
      if (command != "plugin list" && command != "program recipes") return "";
      return "this command reads no database";
    case SettingUse::kCalls:
    case SettingUse::kPlugins:
      return "";
    case SettingUse::kLinking:
      return "programs that link cotune use it";
  }
  return "";
}

// The warning for a flag, or "" if all of it acts.
std::string IdleText(std::string_view command, std::string_view flag, const std::string& text) {
  const std::optional<SettingUse> use = UseOfSetting(FindSetting(flag)->name);
  if (!use) return "";
  if (const std::string_view why = WhyIdle(command, *use); !why.empty()) {
    return fmt::format("{} has no effect on `cotune {}`: {}", FlagName(flag), command, why);
  }
  if (*use != SettingUse::kForcing) return "";
  // A text that is wrong is an error of the setting.
  const Result<ForceText> split = SplitForce(text);
  if (!split || split->operators.empty()) return "";
  return fmt::format(
      "{} for {} has no effect on `cotune {}`: PyTorch runs custom operators, and this command "
      "does not start it; see `cotune run`",
      FlagName(flag), split->OperatorsText(), command);
}

const SettingFlags* SettingsOf(const CommandFlags& flags) {
  return std::visit(
      [](const auto& each) -> const SettingFlags* {
        if constexpr (requires { each.settings; }) return &each.settings;
        return nullptr;
      },
      flags);
}

}  // namespace

Status CheckFlagsAct(const CommandLine& line) { return std::visit(CheckOf{}, line.flags); }

std::optional<SettingUse> UseOfSetting(std::string_view setting) {
  const auto found = std::find_if(kUses.begin(), kUses.end(),
                                  [&](const NamedUse& each) { return each.setting == setting; });
  return found == kUses.end() ? std::nullopt : std::optional(found->use);
}

std::vector<std::string> IdleSettings(const CommandLine& line) {
  std::vector<std::string> warnings;
  const SettingFlags* const settings = SettingsOf(line.flags);
  if (settings == nullptr) return warnings;
  if (line.command == "run" || line.command == "config show") return warnings;
  for (const auto& [flag, text] : settings->values) {
    std::string warning = IdleText(line.command, flag, text);
    if (!warning.empty()) warnings.push_back(std::move(warning));
  }
  return warnings;
}

}  // namespace cotune::cli
