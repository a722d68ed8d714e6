// `cotune doctor`: whether all that a tune needs is here, and how to mend what is not.
#include "cli/commands/doctor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "cli/output/json_output.h"
#include "cli/output/results_file.h"
#include "cli/session/rank_session.h"
#include "core/base/counted.h"
#include "fmt/format.h"
#include "integration/multicast_switches.h"

namespace cotune::cli {
namespace {

size_t CountState(const std::vector<Finding>& findings, std::string_view state) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.state == state; });
}

std::string DoctorText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}: {}\n", finding.state == "ok" ? "OK" : finding.state,
                        finding.subject, finding.text);
    for (const std::string& detail : finding.details)
      text += fmt::format("           {}\n", detail);
    if (!finding.next_step.empty()) {
      text += fmt::format("         next: {}\n", finding.next_step);
    }
  }
  return text +
         fmt::format("{} OK, {}, {}\n", CountState(findings, "ok"),
                     Counted(static_cast<int64_t>(CountState(findings, "note")), "note"),
                     Counted(static_cast<int64_t>(CountState(findings, "problem")), "problem"));
}

// main() has set the variables that switch multicast off.
void CheckMulticast(Checkup& checkup) {
  const std::string text = "off in this process and in every one that cotune starts";
  const std::string overridden = OverriddenSwitchesText(checkup.process.environment);
  if (overridden.empty()) {
    checkup.Ok("NVLink multicast", text);
  } else {
    checkup.Note("NVLink multicast", text, "unset the variable, which has no effect here",
                 {overridden});
  }
}

}  // namespace

void Checkup::Ok(std::string_view subject, std::string text, std::vector<std::string> details) {
  findings.push_back({std::string(subject), "ok", std::move(text), "", std::move(details)});
}

void Checkup::Note(std::string_view subject, std::string text, std::string next_step,
                   std::vector<std::string> details) {
  findings.push_back(
      {std::string(subject), "note", std::move(text), std::move(next_step), std::move(details)});
}

void Checkup::Problem(std::string_view subject, std::string text, std::string next_step,
                      std::vector<std::string> details) {
  findings.push_back(
      {std::string(subject), "problem", std::move(text), std::move(next_step), std::move(details)});
}

std::string MappedFile(std::string_view soname) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    std::string path = line.substr(begin);
    if (path.substr(path.rfind('/') + 1).starts_with(soname)) return path;
  }
  return "";
}

Result<std::string> FirstLine(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string line;
  if (std::getline(file, line)) return line;
  return Fail(ErrorCode::kEnvironment, path, "", errno == 0 ? "it is empty" : std::strerror(errno));
}

namespace {

void CheckAll(const DoctorFlags& flags, Checkup& checkup) {
  const ResolvedSettings& settings = checkup.settings;
  CheckGpus(checkup);
  if (checkup.ranks == 0) {
    const bool is_for_gpus = checkup.gpus > 0 && settings.values.memory != "host";
    checkup.ranks = DefaultRanks(
        {is_for_gpus ? MemoryKind::kCuda : MemoryKind::kHost, is_for_gpus ? checkup.gpus : 0});
  }
  // Plugins load their libraries first, and set them up: UCX's log gets its prefix only then. The
  // findings are in another order, from the libraries to what uses them.
  const size_t gpu_findings = checkup.findings.size();
  CheckTuning(flags, checkup);
  const size_t tuning_findings = checkup.findings.size() - gpu_findings;
  CheckLibraries(checkup);
  CheckMulticast(checkup);
  const auto begin = checkup.findings.begin() + static_cast<ptrdiff_t>(gpu_findings);
  std::rotate(begin, begin + static_cast<ptrdiff_t>(tuning_findings), checkup.findings.end());
  CheckHost(checkup);
  CheckProcesses(checkup);
}

}  // namespace

int DoctorCommand(const DoctorFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  Checkup checkup{process, *settings, flags.ranks, 0, {}};
  {
    const LibrariesPrintToError only_results_are_printed;
    CheckAll(flags, checkup);
  }
  const int printed = console.PrintResult(console.flags().json ? DoctorJson(checkup.findings)
                                                               : DoctorText(checkup.findings));
  if (printed != 0) return printed;
  return CountState(checkup.findings, "problem") == 0 ? 0 : ExitCode(ErrorCode::kEnvironment);
}

}  // namespace cotune::cli
