// `cotune run`: start any program as several ranks.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/session/rank_session.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune::cli {
namespace {

// How long ranks have to end after SIGTERM, as launchers commonly give.
constexpr int64_t kGraceNs = 30'000'000'000;

Error RankLostError(const std::string& what, const std::vector<int>& ranks) {
  return {ErrorCode::kRankLost,
          what,
          "run",
          "it was ended from outside, crashed, or was stopped",
          "see what it printed before, its core dump, or `dmesg` for memory that ran out",
          ranks};
}

// Standard output is the program's, and `run` prints nothing that could be more or less.
Status CheckOutput(const OutputFlags& flags) {
  const auto refuse = [](const std::string& flag, const char* cause) {
    return Fail(ErrorCode::kUsage, "run has no " + flag, "cotune run", cause,
                fmt::format("leave {} out", flag));
  };
  if (flags.json) return refuse("--json", "standard output belongs to the program");
  const char* const cause = "run prints only errors and warnings";
  if (flags.quiet) return refuse("--quiet", cause);
  if (flags.verbose) return refuse("--verbose", cause);
  return {};
}

// Removes the variables of a setting that a flag has set, under the names that no flag has: a flag
// counts more than a variable, and the program will see both as variables.
void DropOtherNames(const SettingSpec& setting, const SettingFlags& flags) {
  std::vector<std::string_view> names = AliasesOf(setting);
  names.push_back(setting.name);
  for (const std::string_view name : names) {
    const bool is_flag = std::any_of(flags.values.begin(), flags.values.end(),
                                     [&](const auto& flag) { return flag.first == name; });
    if (!is_flag) unsetenv(VariableName(name).c_str());
  }
}

// Programs that link cotune read settings from their environment: flags become variables there.
Status PassSettingsOn(const SettingFlags& flags) {
  if (!flags.backend_values.empty()) {
    return Fail(ErrorCode::kUsage, "--set cannot reach the program", "cotune run",
                "a setting of a backend has no variable",
                "write it into a settings file and name that with --config");
  }
  for (const auto& [name, text] : flags.values) {
    const SettingSpec* const setting = FindSetting(name);
    if (setting == nullptr) continue;
    // The program may change its folder before it creates a group.
    std::string value = text;
    if (name == "database" && !text.empty()) {
      std::error_code error;
      const std::filesystem::path whole = std::filesystem::absolute(text, error);
      if (!error) value = whole.string();
    }
    DropOtherNames(*setting, flags);
    setenv(VariableName(name).c_str(), value.c_str(), 1);
  }
  if (flags.settings_file) setenv("COTUNE_CONFIG", flags.settings_file->c_str(), 1);
  return {};
}

}  // namespace

int RunCommand(const RunFlags& flags, Process& process) {
  Console& console = process.console;
  if (Status fits = CheckOutput(console.flags()); !fits) return console.PrintError(fits.error());
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  const Result<std::optional<LaunchContext>> context = FindRank(0, process);
  if (!context) return console.PrintError(context.error());
  if (*context) {
    return console.PrintError(
        {ErrorCode::kUsage,
         "cotune run inside a launcher",
         "launcher " + (*context)->launcher,
         "the launcher has started this process as a rank already",
         "start the program itself under the launcher; " + LeftOverText(**context),
         {}});
  }
  const Result<JobMemory> memory = ChooseMemory(*settings, {}, process);
  if (!memory) return console.PrintError(memory.error());
  const int ranks = flags.ranks == 0 ? DefaultRanks(*memory) : flags.ranks;
  if (Status passed = PassSettingsOn(flags.settings); !passed) {
    return console.PrintError(passed.error());
  }
  SpawnRequest request;
  request.command = flags.program;
  request.ranks = ranks;
  request.grace_ns = kGraceNs;
  request.ends_others = true;
  request.loses_stopped_ranks = false;
  bool is_loss_told = false;
  request.on_loss = [&](int rank, bool by_signal, const std::string& text) {
    is_loss_told = true;
    if (by_signal) return console.LogError(RankLostError(text, {rank}));
    console.Warn(text + (ranks == 1 ? "" : "; the other ranks are ended"));
  };
  const Result<SpawnResult> result = SpawnAndListen(std::move(request), process);
  if (!result) return console.PrintError(result.error());
  if (result->messages.empty()) return result->exit_code;
  if (!is_loss_told) {
    return console.PrintError(
        RankLostError(fmt::format("{}", fmt::join(result->messages, "; ")), result->lost_ranks));
  }
  for (const std::string& message : result->messages) console.Warn(message);
  return result->exit_code;
}

}  // namespace cotune::cli
