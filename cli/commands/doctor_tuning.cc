// Launcher, plugins and the tuned database.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "cli/commands/doctor.h"
#include "cli/session/job_memory.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "core/backend/version_text.h"
#include "core/base/counted.h"
#include "core/database/tuned_database.h"
#include "fmt/format.h"
#include "integration/database_path.h"
#include "integration/missing_database.h"
#include "integration/plugin_scan.h"

namespace cotune::cli {
namespace {

constexpr uint64_t kSampleBytes = 1u << 20;

void AddError(const char* subject, const Error& error, Checkup& checkup) {
  Error without_step = error;
  without_step.next_step.clear();
  checkup.Problem(
      subject, without_step.ToText(),
      error.next_step.empty() ? "mend that first, then run doctor again" : error.next_step);
}

// Counts the choices that a backend offers for each collective of 1 MiB (f32, sum).
void DescribeBackend(const Backend& backend, const std::string& path, MemoryKind memory,
                     Checkup& checkup) {
  size_t offered = 0;
  std::set<std::string> refusals;
  for (const Collective collective : AllCollectives()) {
    ProblemClass cls{.collective = collective, .dtype = Dtype::kF32};
    cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
    cls.memory = memory;
    cls.world_size = cls.ranks_per_node = checkup.ranks;
    const Result<Program> program = Program::SingleCollective(cls);
    if (!program) continue;
    const Problem problem{cls, CountForBytes(cls, kSampleBytes), 0};
    const ChoiceList list = backend.ListChoices(*program, problem);
    offered += list.choices.size();
    for (const Refusal& refusal : list.refusals) {
      refusals.insert(
          fmt::format("refuses {} for {}: {}", refusal.choice, Name(collective), refusal.reason));
    }
  }
  const std::string subject = "plugin " + backend.name();
  const std::string text = fmt::format(
      "{} offers {} for {} of 1 MiB on {}, {} refused; {}", VersionText(backend),
      Counted(offered, "choice"),
      Counted(static_cast<int64_t>(AllCollectives().size()), "collective"),
      Counted(checkup.ranks, "rank"), refusals.size(), path.empty() ? "built in" : path);
  std::vector<std::string> details(refusals.begin(), refusals.end());
  if (offered > 0) {
    checkup.Ok(subject, text, std::move(details));
  } else {
    checkup.Note(subject, text, "the reasons say what it would need", std::move(details));
  }
}

// Returns true if the library of this backend was found, and its group could not be made.
bool HasNoGroup(Job& job, std::string_view backend) {
  const std::vector<Refusal>& refusals = job.groups().refusals();
  return std::any_of(refusals.begin(), refusals.end(),
                     [&](const Refusal& refusal) { return refusal.choice == backend; });
}

void CheckPlugins(Job& job, MemoryKind memory, const std::vector<std::string>& folders,
                  Checkup& checkup) {
  if (job.plugin_reports().empty()) {
    AddError("plugins", NoPluginFound(folders), checkup);
  }
  for (const PluginReport& report : job.plugin_reports()) {
    const BackendMember* const member =
        report.loaded && report.reason.empty() ? job.groups().Find(report.backend) : nullptr;
    const bool is_ucx = report.backend == "ucx" && (member != nullptr || HasNoGroup(job, "ucx"));
    checkup.has_ucx = checkup.has_ucx || is_ucx;
    if (member != nullptr) {
      DescribeBackend(*member->backend, report.path, memory, checkup);
      continue;
    }
    const std::string subject = report.backend.empty() ? "plugin" : "plugin " + report.backend;
    if (report.loaded && report.reason.empty()) {
      checkup.Note(subject, fmt::format("not used on {} memory", Name(memory)),
                   "choose another with --memory");
    } else if (report.loaded) {
      const std::string step = is_ucx ? UcxSharedMemoryStep(checkup.ranks) : "";
      checkup.Note(subject, report.reason,
                   step.empty() ? "ignore it, or install what it lacks" : step);
    } else {
      checkup.Problem(subject, fmt::format("{}: {}", report.path, report.reason),
                      "mend it as it says, or take the file out of the plugin folder");
    }
  }
  const bool has_backend = !job.groups().members().empty();
  if (!has_backend && !job.plugin_reports().empty()) {
    checkup.Problem("plugins", fmt::format("no backend works on {} memory", Name(memory)),
                    "see the plugins above; --memory host needs cotune_host.so alone");
  }
}

// "" or why nothing can be written beside the file.
std::string WhyNotWritable(const std::string& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  // Missing folders are made by a tune: the nearest one that is there decides.
  while (folder.has_relative_path() && !std::filesystem::exists(folder, error)) {
    folder = folder.parent_path();
  }
  if (faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return "";
  return fmt::format("{}: {}", folder.string(), std::strerror(errno));
}

void CheckDatabase(const Job& job, Checkup& checkup) {
  const char* const subject = "database";
  const Result<std::string> path = DatabasePath(checkup.settings.values.database,
                                                checkup.process.environment, job.fingerprint());
  if (!path) return AddError(subject, path.error(), checkup);
  const std::string why_not_writable = WhyNotWritable(*path);
  if (access(path->c_str(), F_OK) != 0 && errno == ENOENT) {
    if (!why_not_writable.empty()) {
      checkup.Problem(
          subject, fmt::format("{} is not there and cannot be made: {}", *path, why_not_writable),
          "name a file in a folder that you may write to with --db");
    } else {
      const UnfinishedTune tune = FindUnfinishedTune(*path);
      checkup.Note(
          subject,
          fmt::format("{} is not there yet{}{}", *path, tune.cause.empty() ? "" : ": ", tune.cause),
          tune.next_step.empty() ? "cotune tune" : tune.next_step);
    }
    return;
  }
  const std::string running_tune = RunningTuneText(*path, "counted");
  const Result<TunedDatabase> database = TunedDatabase::Load(*path);
  if (!database) return AddError(subject, database.error(), checkup);
  std::set<std::string> misses;
  size_t valid = 0;
  for (const DatabaseRow& row : database->rows()) {
    if (const std::optional<Miss> miss =
            WhyNotValid(*row.fingerprint, *row.winner, job.fingerprint())) {
      misses.insert("not valid here: " + miss->detail);
    } else {
      ++valid;
    }
  }
  const std::string text = fmt::format(
      "{}: {} of {} entries are valid here, {}", *path, valid, database->size(),
      why_not_writable.empty() ? "writable" : "not writable (" + why_not_writable + ")");
  std::vector<std::string> details(misses.begin(), misses.end());
  if (!running_tune.empty()) {
    details.insert(details.begin(), running_tune);
    checkup.Note(subject, text, "wait until that tune ends", std::move(details));
  } else if (valid == 0) {
    checkup.Note(subject, text, "cotune tune", std::move(details));
  } else if (!why_not_writable.empty()) {
    checkup.Note(subject, text, "a tune of anything new needs another file: --db",
                 std::move(details));
  } else {
    checkup.Ok(subject, text, std::move(details));
  }
}

void CheckLauncher(int flag_ranks, Checkup& checkup) {
  const Result<std::optional<LaunchContext>> context = FindRank(flag_ranks, checkup.process);
  if (!context) return AddError("launcher", context.error(), checkup);
  if (!*context) {
    checkup.Ok("launcher",
               fmt::format("none; cotune starts {} itself", Counted(checkup.ranks, "rank")));
    return;
  }
  checkup.ranks = (*context)->world_size;
  checkup.Ok("launcher",
             fmt::format("{}: rank {} of {}, {} on this host", (*context)->launcher,
                         (*context)->rank, (*context)->world_size, (*context)->local_size));
}

}  // namespace

void CheckTuning(const DoctorFlags& flags, Checkup& checkup) {
  CheckLauncher(flags.ranks, checkup);
  Result<JobMemory> memory = ChooseMemory(checkup.settings, flags.plugins, checkup.process);
  if (!memory) {
    AddError("memory", memory.error(), checkup);
    memory = JobMemory{};
  }
  Result<std::unique_ptr<Job>> job =
      JoinAlone(checkup.settings, flags.plugins, *memory, checkup.process, JobPurpose::kSurvey);
  if (!job && memory->kind == MemoryKind::kCuda) {
    AddError("GPU memory", job.error(), checkup);
    memory = JobMemory{};
    job = JoinAlone(checkup.settings, flags.plugins, *memory, checkup.process, JobPurpose::kSurvey);
  }
  if (!job) return AddError("plugins", job.error(), checkup);
  const JobOptions options =
      MakeJobOptions(checkup.settings, flags.plugins, memory->kind, checkup.process);
  CheckPlugins(**job, memory->kind, options.catalogue.plugin_search_path, checkup);
  CheckDatabase(**job, checkup);
}

}  // namespace cotune::cli
