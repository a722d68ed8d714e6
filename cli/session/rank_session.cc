#include "cli/session/rank_session.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/output/json_output.h"
#include "cli/output/progress.h"
#include "cli/session/interrupts.h"
#include "cli/session/last_resort.h"
#include "cli/session/lone_job.h"
#include "cli/session/trace_file.h"
#include "core/base/counted.h"
#include "core/base/usable_processors.h"
#include "core/database/tuning_journal.h"
#include "core/events/event_stream.h"
#include "fmt/format.h"
#include "integration/database_path.h"
#include "integration/event_recorder.h"
#include "integration/plugin_scan.h"
#include "integration/spawn.h"

namespace cotune::cli {
namespace {

// Prepares the message for an interrupt while ranks still wait for each other.
void CatchInterruptsOf(const LaunchContext& context, const Console& console) {
  const Error early{ErrorCode::kInterrupted, "interrupted before the tune began", "", "", "", {}};
  const std::string text = fmt::format("cotune: error {} ({}): {}\n", ExitCode(early.code),
                                       ErrorCodeName(early.code), early.ToText());
  CatchInterrupts(context.rank == 0, console.error_pipe(), text,
                  console.flags().json ? ErrorJson(console.command(), early) : "");
}

// How long ranks may go on after one has failed: until they have said in which call they are stuck,
// if they are.
int64_t GraceNs(const TuningSettings& settings) {
  constexpr int64_t kLastWordsNs = 5'000'000'000;
  return std::max(2 * settings.collective_autotune_timeout_ns, StuckReportNs(settings)) +
         kLastWordsNs;
}

// Tells the process that started this rank, if one of this program did, that the ranks notice a
// loss by themselves from here on.
void SayJoined(const Console& console) {
  if (console.error_pipe() < 0) return;
  // A word that cannot be written has no reader.
  [[maybe_unused]] const ssize_t written =
      write(console.error_pipe(), kJoinedWord, sizeof(kJoinedWord));
}

// Whether this program, started by the user, has started this rank.
bool IsOwnRank(const Process& process) {
  const auto pipe = process.environment.find(kErrorPipeVariable);
  return pipe != process.environment.end() && !pipe->second.empty();
}

// Whether this rank is the one that says it: the lowest that is not at fault itself. In a tune
// every rank fails with the same error; before all have joined, only those of the control channel
// are.
bool SpeaksOf(const Error& error, bool has_joined, const LaunchContext& context,
              const Process& process) {
  // Without rank 0 no rank knows of another one: this one may be alone.
  const bool is_without_rank_0 = !has_joined && error.ranks == std::vector<int>{0};
  if (is_without_rank_0 && !IsOwnRank(process)) return true;
  const int rank = context.rank;
  const int world_size = context.world_size;
  const bool is_shared =
      has_joined || error.code == ErrorCode::kRankLost || error.code == ErrorCode::kDeadline;
  if (!is_shared || error.code == ErrorCode::kInternal) return true;
  int speaker = 0;
  for (const int lost : error.ranks) speaker += lost == speaker ? 1 : 0;
  // All are at fault: somebody has to say it.
  return rank == (speaker < world_size ? speaker : 0);
}

// The listeners of one rank, in the order in which they hear.
struct Watchers {
  std::unique_ptr<Progress> progress;       // of rank 0
  std::unique_ptr<EventRecorder> recorder;  // where a trace was asked for
  std::unique_ptr<StageObserver> further;
  std::unique_ptr<EventStream> events;
};

Result<Watchers> MakeWatchers(const LaunchContext& context, const Clock& clock,
                              const std::string& database, const RankWork& work, Process& process) {
  const int rank = context.rank;
  Watchers watchers;
  std::vector<StageObserver*> listeners;
  if (rank == 0) {
    const OutputFlags& flags = process.console.flags();
    Progress::Options options{.redraw = process.log_is_terminal,
                              .columns = process.log_columns,
                              .quiet = flags.quiet,
                              .verbose = flags.verbose,
                              .hides_refused_cells = !work.uses_database,
                              .database = database};
    watchers.progress = std::make_unique<Progress>(
        clock, options, [&process](std::string_view text) { process.console.PrintLog(text); });
    listeners.push_back(watchers.progress.get());
  }
  if (!work.trace_path.empty()) {
    watchers.recorder =
        std::make_unique<EventRecorder>(RecorderLimits::ForRanks(context.world_size));
    listeners.push_back(watchers.recorder.get());
  }
  if (process.make_listener) {
    COTUNE_TRY(std::unique_ptr<StageObserver> made, process.make_listener(context));
    watchers.further = std::move(made);
    if (watchers.further != nullptr) listeners.push_back(watchers.further.get());
  }
  watchers.events = std::make_unique<EventStream>(clock, std::move(listeners));
  return watchers;
}

Result<TuneRequest> MakeRequest(const RankWork& work, const std::string& database) {
  TuneRequest request;
  for (const ProblemClass& cls : work.selection.classes) {
    COTUNE_TRY(Program program, Program::SingleCollective(cls));
    request.nodes.push_back({std::move(program), work.selection.SizesOf(cls)});
  }
  for (const ProgramSelection& each : work.selection.programs) {
    request.nodes.push_back({each.program, each.sizes_bytes});
  }
  request.database_path = database;
  request.ends_unless_kept = work.uses_database;
  request.command = work.uses_database ? "tune" : "bench";
  request.force = work.force;
  request.is_traced = !work.trace_path.empty();
  request.cotune_version = CotuneVersion();
  request.interrupted = &Interrupted();
  return request;
}

std::vector<Program> ProgramsOf(const TuneRequest& request) {
  std::vector<Program> programs;
  for (const TuneNode& node : request.nodes) {
    if (!node.program.is_single_collective()) programs.push_back(node.program);
  }
  return programs;
}

// Plugins that were found and refused are no error, but the user should know.
void WarnOfRefusedPlugins(const Job& job, Process& process) {
  for (const PluginReport& report : job.plugin_reports()) {
    if (report.loaded || report.reason.empty()) continue;
    process.console.Warn(fmt::format("plugin {} is not used: {}",
                                     report.path.empty() ? report.backend : report.path,
                                     report.reason));
  }
}

Result<int> JoinAndTune(const LaunchContext& context, const ResolvedSettings& settings,
                        const PluginFlags& plugins, const RankWork& work, Process& process,
                        const PrintReport& print, bool& has_joined) {
  const MonotonicClock clock;
  const std::string asked_database = work.uses_database ? settings.values.database : "";
  COTUNE_TRY(Watchers watchers, MakeWatchers(context, clock, asked_database, work, process));
  JobOptions options = MakeJobOptions(settings, plugins, work.memory.kind, process);
  options.context = context;
  options.observer = watchers.events.get();
  if (!IsOwnRank(process)) options.missing_ranks_hint = LeftOverText(context);
  COTUNE_TRY(std::unique_ptr<Job> job, Job::Join(options));
  has_joined = true;
  SayJoined(process.console);
  BeginInterruptible();
  std::string database;
  if (work.uses_database) {
    COTUNE_TRY(std::string path,
               DatabasePath(settings.values.database, process.environment, job->fingerprint()));
    database = std::move(path);
  }
  if (context.rank == 0) {
    WarnOfRefusedPlugins(*job, process);
    // For ranks that this program started, their parent has printed the warnings.
    if (!IsOwnRank(process)) WarnOfSettings(*job, process);
    watchers.progress->set_database(database);
    const bool has_default_place = work.uses_database && settings.values.database.empty();
    if (has_default_place) {
      if (Status made = MakeFolderOf(database); !made) process.console.Warn(made.error().ToText());
    }
  }
  NoteJournal(database.empty() ? "" : database + ".journal");
  COTUNE_TRY(const TuneRequest request, MakeRequest(work, database));
  if (watchers.progress != nullptr) watchers.progress->set_programs(ProgramsOf(request));
  const Result<TuneReport> report = RunTune(*job, request);
  NoteJournal("");
  EndInterruptible();
  if (watchers.progress != nullptr) watchers.progress->Clear();
  COTUNE_RETURN_IF_ERROR(report);
  std::vector<TraceOfRank> traces;
  if (watchers.recorder != nullptr) {
    traces = GatherTracesOrWarn(*job, *watchers.recorder, process.console);
  }
  int exit_code = 0;
  // The user sees what was measured although it could not be saved; as JSON there is one document,
  // the error.
  const bool has_document = process.console.flags().json && report->save_failure;
  if (context.rank == 0 && !has_document) exit_code = print(*job, *report, database);
  if (context.rank == 0) WriteTraceFile(work.trace_path, traces, process.console);
  if (report->save_failure) return tl::make_unexpected(*report->save_failure);
  return exit_code;
}

}  // namespace

Result<ResolvedSettings> ReadSettings(const SettingFlags& flags, Process& process) {
  SettingSources sources;
  sources.environment = process.environment;
  sources.settings_file = flags.settings_file;
  sources.flags = flags.values;
  sources.backend_flags = flags.backend_values;
  Result<ResolvedSettings> settings = ResolveSettings(sources);
  const Result<std::optional<LaunchContext>> context = FindRank(0, process);
  // Contradicting launchers are the caller's concern.
  if (settings && (!context || SpeaksForJob(*context, process))) {
    for (const std::string& warning : settings->warnings) process.console.Warn(warning);
  }
  return settings;
}

void WarnOfSettings(const Job& job, Process& process) {
  for (const std::string& warning : job.setting_warnings()) process.console.Warn(warning);
}

JobOptions MakeJobOptions(const ResolvedSettings& settings, const PluginFlags& plugins,
                          MemoryKind memory, const Process& process) {
  JobOptions options;
  options.settings = settings.values;
  options.force_origin = settings.origins.at("force_choice");
  options.memory = memory;
  for (const std::string& plugin : plugins.plugins) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(plugin, error);
    // An empty name, or a working folder that is gone: the loader says what is wrong with it.
    options.catalogue.plugin_paths.push_back(error ? plugin : whole.lexically_normal().string());
  }
  Environment environment = process.environment;
  environment.erase("COTUNE_PLUGIN_PATH");
  if (!settings.values.plugin_path.empty()) {
    environment["COTUNE_PLUGIN_PATH"] = settings.values.plugin_path;
  }
  options.catalogue.plugin_search_path = DefaultPluginSearchPath(environment);
  options.catalogue.backends = plugins.backends;
  options.catalogue.settings = settings.backend_values;
  options.catalogue.setting_origins = settings.backend_origins;
  options.catalogue.check_calls = settings.values.check_calls;
  options.on_stuck = [&console = process.console](const Error& error) {
    console.WarnOfLostRank();
    EndStuck(error, console, error.ranks.empty() || error.ranks.front() == 0);
  };
  options.lines = &process.console;
  return options;
}

Result<std::optional<LaunchContext>> FindRank(int flag_ranks, const Process& process) {
  Result<std::optional<LaunchContext>> context =
      DetectLaunchContext(process.environment, getppid());
  if (context && *context && flag_ranks != 0 && flag_ranks != (*context)->world_size) {
    return Fail(ErrorCode::kUsage,
                fmt::format("--ranks {} contradicts the launcher {}, which started {}", flag_ranks,
                            (*context)->launcher, Counted((*context)->world_size, "rank")),
                "--ranks", "a launcher decides the number of ranks",
                "leave --ranks out; " + LeftOverText(**context));
  }
  return context;
}

bool SpeaksForJob(const std::optional<LaunchContext>& context, const Process& process) {
  return !IsOwnRank(process) && (!context || context->rank == 0);
}

std::vector<std::string> SelfCommand(const Process& process) {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<size_t>(length) : 0);
  std::vector<std::string> command = {path};
  command.insert(command.end(), process.arguments.begin(), process.arguments.end());
  return command;
}

namespace {

// Reports once what every rank would fail with, and returns the path of the tuned database, "" for
// none. The job of this check ends before any rank is started: a signal that the supervisor of the
// ranks waits for must not come to one of its threads.
Result<std::string> CheckAlone(int ranks, const ResolvedSettings& settings,
                               const PluginFlags& plugins, const JobMemory& memory,
                               bool uses_database, Process& process) {
  COTUNE_TRY(const std::unique_ptr<Job> job, JoinAlone(settings, plugins, memory, process));
  COTUNE_RETURN_IF_ERROR(job->CheckForced(ranks));
  if (!uses_database) return std::string();
  return DatabasePath(settings.values.database, process.environment, job->fingerprint());
}

// Names the cells of a tune that its ranks, which are gone, have left beside the database.
std::string LeftByRanksText(const std::string& database) {
  const Result<std::unique_ptr<TuningJournal>> journal =
      TuningJournal::Open(database, JournalKind::kTune);
  if (!journal) {
    return fmt::format("{}.journal may hold what was measured (it cannot be read: {})", database,
                       journal.error().ToText());
  }
  const auto cells = static_cast<int64_t>((*journal)->replayed().size());
  if (cells == 0) return "nothing was measured yet";
  return fmt::format("{} {} kept in {}.journal, and the next tune continues from there",
                     Counted(cells, "measured cell"), cells == 1 ? "is" : "are", database);
}

// "while all_reduce sum f32 at 4096 bytes was measured", of an error of a rank; "" if it has none.
std::string WhileMeasuredText(const std::string& error) {
  constexpr std::string_view kEnd = " was measured";
  const size_t begin = error.find("while ");
  const size_t end = error.find(kEnd, std::min(begin, error.size()));
  if (begin == std::string::npos || end == std::string::npos) return "";
  return error.substr(begin, end + kEnd.size() - begin);
}

// A rank that gets no processor for seconds is taken for lost.
void WarnOfTooManyRanks(int ranks, Console& console) {
  constexpr size_t kRanksOfProcessorMax = 16;
  const size_t processors = ProcessorsIn(UsableProcessors()).size();
  const size_t most = kRanksOfProcessorMax * processors;
  if (processors == 0 || static_cast<size_t>(ranks) <= most) return;
  console.Warn(fmt::format(
      "{} ranks on {}, {:.1f} to each: a rank that gets no processor for seconds is taken for "
      "lost; start at most {} here",
      ranks, Counted(static_cast<int64_t>(processors), "usable processor"),
      static_cast<double>(ranks) / static_cast<double>(processors), most));
}

}  // namespace

int SpawnTune(int ranks, const ResolvedSettings& settings, const PluginFlags& plugins,
              const JobMemory& memory, bool uses_database, Process& process) {
  if (Status fits = CheckRanks(memory, ranks); !fits) {
    return process.console.PrintError(fits.error());
  }
  const Result<std::string> database =
      CheckAlone(ranks, settings, plugins, memory, uses_database, process);
  if (!database) return process.console.PrintError(database.error());
  WarnOfTooManyRanks(ranks, process.console);
  SpawnRequest request;
  request.command = SelfCommand(process);
  request.ranks = ranks;
  request.grace_ns = GraceNs(settings.values);
  request.knows_error_pipe = true;
  request.reports_milestones = true;
  // The others notice the loss of rank 0, and this process knows how it ended: one error has both.
  std::vector<std::pair<std::vector<int>, std::string>> about_rank_0;
  request.on_error = [&](const std::vector<int>& from, const std::string& text) {
    if (text.find("(rank_lost): rank 0 died") != std::string::npos) {
      about_rank_0.emplace_back(from, text);
    } else {
      process.console.LogRankError(from, ranks, text);
    }
  };
  const Result<SpawnResult> result = SpawnAndListen(std::move(request), process);
  if (!result) {
    for (const auto& [from, text] : about_rank_0) process.console.LogRankError(from, ranks, text);
    return process.console.PrintError(result.error());
  }
  const bool rank_0_is_lost = !result->lost_ranks.empty() && result->lost_ranks.front() == 0;
  std::string where = "own ranks";
  for (const auto& [from, text] : about_rank_0) {
    const std::string while_measured = WhileMeasuredText(text);
    if (!while_measured.empty()) where = while_measured;
    if (!rank_0_is_lost) process.console.LogRankError(from, ranks, text);
  }
  // Rank 0 says what ends a tune, and prints the JSON of it, unless it cannot.
  const bool rank_0_is_silent = result->was_lost_before_join && !result->rank_0_told_error;
  const bool nobody_speaks = !result->lost_ranks.empty() && (rank_0_is_lost || rank_0_is_silent);
  std::string what;
  for (const std::string& message : result->messages) {
    const bool is_the_error =
        what.empty() && nobody_speaks && (!rank_0_is_lost || message.starts_with("rank 0 "));
    if (is_the_error) what = message;
    if (!is_the_error) process.console.Warn(message);
  }
  if (!nobody_speaks) return result->exit_code;
  std::string next_step = "run again";
  if (!result->was_lost_before_join && !database->empty()) {
    next_step += "; " + LeftByRanksText(*database);
  }
  if (what.find("SIGXFSZ") != std::string::npos) next_step = "raise ulimit -f, and " + next_step;
  // Rank 0 would have said what happened.
  return process.console.PrintError({ErrorCode::kRankLost,
                                     what,
                                     where,
                                     "it was ended from outside, crashed, was stopped, or left",
                                     std::move(next_step),
                                     {result->lost_ranks.front()}});
}

Result<SpawnResult> SpawnAndListen(SpawnRequest request, Process& process) {
  if (!request.on_error) {
    request.on_error = [&process, world_size = request.ranks](const std::vector<int>& ranks,
                                                              const std::string& text) {
      process.console.LogRankError(ranks, world_size, text);
    };
  }
  return SpawnRanks(request);
}

int TuneAsRank(const LaunchContext& context, const ResolvedSettings& settings,
               const PluginFlags& plugins, const RankWork& work, Process& process,
               const PrintReport& print) {
  CatchInterruptsOf(context, process.console);
  NoteRank(context.rank, context.world_size);
  bool has_joined = false;
  const Result<int> exit_code =
      JoinAndTune(context, settings, plugins, work, process, print, has_joined);
  if (exit_code) {
    process.console.WarnOfLostRank();
    return *exit_code;
  }
  const Error& error = exit_code.error();
  const bool speaks = SpeaksOf(error, has_joined, context, process);
  // Another error does not have the reason. If a launcher has started the ranks, another rank may
  // print this one, in a log of its own.
  const bool prints_loss = speaks && error.code == ErrorCode::kRankLost;
  if (!prints_loss && !IsOwnRank(process)) process.console.WarnOfLostRank();
  if (!speaks) return ExitCode(error.code);
  if (context.rank == 0) return process.console.PrintError(error);
  // Results, JSON included, are rank 0's.
  process.console.LogError(error);
  return ExitCode(error.code);
}

TuneSummary Summarize(const TuneReport& report, const std::string& database) {
  return {.database = database,
          .committed = report.outcome.committed,
          .late_ranks = report.outcome.late_ranks,
          .measured_cells = report.outcome.measured_cells,
          .cells_without_winner = static_cast<int32_t>(report.cells_without_winner.size()),
          .known_cells = report.outcome.known_cells,
          .forced_cells = report.outcome.forced_cells,
          .skipped_cells = report.outcome.skipped_cells,
          .unsteady_cells = report.outcome.unsteady_cells,
          .pre_syncs = report.outcome.pre_syncs,
          .pre_sync_ns = report.outcome.pre_sync_ns,
          .elapsed_ns = report.elapsed_ns,
          .times = report.times,
          .entries = report.entries,
          .backend_refusals = report.outcome.backend_refusals};
}

bool IsRefused(const DecidedCell& cell) { return !cell.winner && cell.cell.verdicts.empty(); }

namespace {

std::optional<Error> WhyWithoutWinner(const TuneReport& report) {
  if (report.cells_without_winner.empty()) return std::nullopt;
  const auto& [cell, first] = report.cells_without_winner.front();
  Error error{ErrorCode::kEnvironment,
              fmt::format("no choice works in {} of {}", report.cells_without_winner.size(),
                          Counted(static_cast<int64_t>(report.cells_without_winner.size() +
                                                       report.entries.size()),
                                  "cell")),
              first.error().where,
              "",
              "see the reasons above; leave the problem out to tune the rest",
              {}};
  for (const DecidedCell& each : report.cells_without_winner) {
    for (const Verdict& verdict : each.cell.verdicts) {
      if (verdict.wrong_elements > 0) error.code = ErrorCode::kWrongResult;
    }
  }
  const auto lost_heat = [](const Verdict& verdict) {
    return verdict.outcome == Outcome::kLostHeat;
  };
  error.cause = cell.verdicts.empty() ? first.error().cause
                : std::any_of(cell.verdicts.begin(), cell.verdicts.end(), lost_heat)
                    ? "every choice of the second heat failed or computed wrong values"
                    : "every choice failed or computed wrong values";
  return error;
}

}  // namespace

std::optional<Error> WhyIncomplete(const TuneReport& report) {
  if (!report.outcome.late_ranks.empty()) {
    return Error{ErrorCode::kDeadline,
                 fmt::format("nothing was tuned: rank {} missed the pre-sync window",
                             NumbersText(report.outcome.late_ranks)),
                 "pre_sync",
                 "the rank was slow to start or is overloaded",
                 "run again, or raise collective_pre_sync_timeout",
                 report.outcome.late_ranks};
  }
  if (!report.outcome.committed) {
    return Error{ErrorCode::kRankLost,
                 "nothing was tuned: a rank declined the table",
                 "agree",
                 "the ranks came to different winners",
                 "run again; if it repeats, report it",
                 {}};
  }
  return WhyWithoutWinner(report);
}

}  // namespace cotune::cli
