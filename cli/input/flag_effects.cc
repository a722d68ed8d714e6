#include "cli/input/flag_effects.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
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

// The part of a command that a setting acts on.
enum class Use : uint8_t {
  kMeasuring,      // a race
  kDeadline,       // a race, and a call into a plugin that does not return
  kCheckingCalls,  // calls of NCCL
  kForms,          // which choices and forms are listed, and which measurements are valid for them
  kThreshold,      // which form wins, and which measurements are valid for that
  kForcing,        // the choice of a call
  kDatabase,
  kPlugins,  // which plugins are loaded, and for which memory
  kLinking,  // a group of a program that links cotune
};

struct UseOfSetting {
  std::string_view setting;
  Use use;
};

// One line for each setting of the table of settings.
constexpr std::array kUses = {
    UseOfSetting{"collective_autotune_timeout", Use::kDeadline},
    UseOfSetting{"collective_benchmark_nruns", Use::kMeasuring},
    UseOfSetting{"collective_pre_sync_timeout", Use::kMeasuring},
    UseOfSetting{"enable_collective_multitemplate", Use::kMeasuring},
    UseOfSetting{"collective_multi_kernel_hints", Use::kMeasuring},
    UseOfSetting{"precompile_threads", Use::kMeasuring},
    UseOfSetting{"warm_timeout", Use::kDeadline},
    UseOfSetting{"budget", Use::kMeasuring},
    UseOfSetting{"min_rounds", Use::kMeasuring},
    UseOfSetting{"noise_percent", Use::kMeasuring},
    UseOfSetting{"keep_unsteady", Use::kMeasuring},
    UseOfSetting{"sample_time", Use::kMeasuring},
    UseOfSetting{"numerics", Use::kForms},
    UseOfSetting{"collective_fusion_enabled", Use::kForms},
    UseOfSetting{"custom_op_fusion_types", Use::kForms},
    UseOfSetting{"benchmark_collective_epilogue_fusion", Use::kForms},
    UseOfSetting{"enable_recursive_fusion", Use::kForms},
    UseOfSetting{"max_fusion_depth", Use::kForms},
    UseOfSetting{"fusion_speedup_threshold", Use::kThreshold},
    UseOfSetting{"force_choice", Use::kForcing},
    UseOfSetting{"memory", Use::kPlugins},
    UseOfSetting{"plugin_path", Use::kPlugins},
    UseOfSetting{"database", Use::kDatabase},
    UseOfSetting{"load_database", Use::kLinking},
    UseOfSetting{"exit_when_stuck", Use::kLinking},
    UseOfSetting{"check_calls", Use::kCheckingCalls},
};

// nullopt if the table above lacks the setting; a test looks for that.
std::optional<Use> UseOf(std::string_view setting) {
  const auto found = std::find_if(kUses.begin(), kUses.end(), [&](const UseOfSetting& each) {
    return each.setting == setting;
  });
  return found == kUses.end() ? std::nullopt : std::optional(found->use);
}

// Why a command does not use a setting; "" if it does. Two commands use all of them: `run` passes
// them on, and `config show` prints them.
std::string_view WhyIdle(std::string_view command, Use use) {
  const bool measures = command == "tune" || command == "bench";
  switch (use) {
    case Use::kMeasuring:
      return measures ? "" : "this command measures nothing";
    case Use::kDeadline:
      return measures ? "" : "this command measures nothing, and has calls into plugins alone";
    case Use::kCheckingCalls:
      return measures ? "" : "this command runs no collective";
    case Use::kForms:
      return command == "plugin list" ? "this command lists no choices" : "";
    case Use::kThreshold:
      if (command == "program recipes") return "this command lists every form, also slower ones";
      return command == "plugin list" ? "this command lists no choices" : "";
    case Use::kForcing:
      if (command == "bench") return "every choice is measured";
      if (command == "tune" || command == "explain") return "";
      return "this command names no winner of a call";
    case Use::kDatabase:
      if (command != "plugin list" && command != "program recipes") return "";
      return "this command reads no database";
    case Use::kPlugins:
      return "";
    case Use::kLinking:
      return "programs that link cotune use it";
  }
  return "";
}

// The warning for a flag, or "" if all of it acts.
std::string IdleText(std::string_view command, std::string_view flag, const std::string& text) {
  const std::optional<Use> use = UseOf(FindSetting(flag)->name);
  if (!use) return "";
  if (const std::string_view why = WhyIdle(command, *use); !why.empty()) {
    const std::string_view effect =
        *use == Use::kDeadline ? "limits no measurement of" : "has no effect on";
    return fmt::format("{} {} `cotune {}`: {}", FlagName(flag), effect, command, why);
  }
  if (*use != Use::kForcing) return "";
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
