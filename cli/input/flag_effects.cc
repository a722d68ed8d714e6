#include "cli/input/flag_effects.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include "core/problem/problem.h"
#include "fmt/format.h"
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

constexpr std::array kMeasuring = {"collective_benchmark_nruns",
                                   "collective_pre_sync_timeout",
                                   "collective_multi_kernel_hints",
                                   "enable_collective_multitemplate",
                                   "precompile_threads",
                                   "max_autotune_gemm_threads",
                                   "budget",
                                   "min_rounds",
                                   "noise_percent",
                                   "keep_unsteady",
                                   "sample_time"};
constexpr std::array kLinkedPrograms = {"load_database", "exit_when_stuck"};

template <typename Names>
bool IsOneOf(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Why a command does not use a setting; "" if it does.
std::string_view WhyIdle(std::string_view command, std::string_view name) {
  if (command == "run" || command == "config show") return "";
  if (IsOneOf(kLinkedPrograms, name)) return "programs that link cotune use it";
  const bool measures = command == "tune" || command == "bench";
  if (!measures && IsOneOf(kMeasuring, name)) return "this command measures nothing";
  if (name == "force_choice") {
    if (command == "bench") return "every choice is measured";
    if (command != "tune" && command != "explain") return "this command names no winner of a call";
  }
  const bool reads_database = command != "plugin list" && command != "program recipes";
  if (name == "database" && !reads_database) return "this command reads no database";
  return "";
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
  for (const auto& [name, text] : settings->values) {
    const std::string_view why = WhyIdle(line.command, name);
    if (why.empty()) continue;
    warnings.push_back(
        fmt::format("{} has no effect on `cotune {}`: {}", FlagName(name), line.command, why));
  }
  return warnings;
}

}  // namespace cotune::cli
