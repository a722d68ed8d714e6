#include "integration/tune_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/event_sink.h"
#include "core/base/processor_times.h"
#include "core/base/sha256.h"
#include "core/choice/choice_caller.h"
#include "core/choice/multi_template.h"
#include "core/choice/precompile.h"
#include "core/choice/prepare_spans.h"
#include "core/database/tuning_journal.h"
#include "core/events/event_stream.h"
#include "fmt/format.h"
#include "integration/database_cells.h"
#include "integration/rank_zero_status.h"

namespace cotune {
namespace {

// Notes the plans that this rank makes in the journal that rank 0 has begun.
class NotesInJournal final : public PrepareNotes {
 public:
  NotesInJournal(std::string path, int rank) : path_(std::move(path)), rank_(rank) {}

  bool IsSuspect(const ChoiceCaller& caller) override {
    // Read at the first question, when rank 0 has begun the journal.
    std::call_once(read_, [&] { suspects_ = SuspectsOf(path_); });
    const JournalAttempt attempt = AttemptOf(caller);
    return std::any_of(suspects_.begin(), suspects_.end(), [&](const JournalAttempt& suspect) {
      return suspect.IsOfSameChoice(attempt);
    });
  }
  void Begin(const ChoiceCaller& caller) override { Note(caller, false); }
  void End(const ChoiceCaller& caller) override { Note(caller, true); }

 private:
  static JournalAttempt AttemptOf(const ChoiceCaller& caller) {
    return {ToText(caller.problem().cls), caller.problem().bytes(), caller.id().text()};
  }
  void Note(const ChoiceCaller& caller, bool is_over) const {
    AppendPrepare(path_, {AttemptOf(caller), rank_, is_over});
  }

  const std::string path_;
  const int rank_;
  std::once_flag read_;
  std::vector<JournalAttempt> suspects_;
};

// Says whether the user asked to stop, or rank 0 cannot keep what it measures.
class StopListener final : public StageObserver {
 public:
  StopListener(const std::atomic<bool>* interrupted, const std::optional<DatabaseCells>& known)
      : interrupted_(interrupted), known_(known) {}
  bool IsInterrupted() const { return interrupted_ != nullptr && interrupted_->load(); }
  bool StopRequested() override { return IsInterrupted() || (known_ && known_->why_not_kept()); }

 private:
  const std::atomic<bool>* interrupted_;
  const std::optional<DatabaseCells>& known_;
};

// The stream of one tune. A thread that is left behind in a call may still emit into it when the
// tune is over; then nobody listens.
class StreamOfTune {
 public:
  StreamOfTune(const Clock& clock, std::vector<StageObserver*> listeners)
      : stream_(std::make_shared<EventStream>(clock, std::move(listeners))) {}
  ~StreamOfTune() { stream_->Close(); }
  StreamOfTune(const StreamOfTune&) = delete;
  StreamOfTune& operator=(const StreamOfTune&) = delete;

  const std::shared_ptr<EventStream>& shared() const { return stream_; }

 private:
  const std::shared_ptr<EventStream> stream_;
};

// For as long as the tune runs: a stop ends calls that take long, and a call that is stuck is
// written down for the next tune.
class WatchOfTune {
 public:
  WatchOfTune(Job& job, const TuneRequest& request) : job_(job) {
    job_.watchdog().set_interrupted(request.interrupted);
    job_.set_journal_path(request.database_path.empty() ? "" : request.database_path + ".journal");
  }
  ~WatchOfTune() {
    job_.watchdog().set_interrupted(nullptr);
    job_.set_journal_path("");
  }
  WatchOfTune(const WatchOfTune&) = delete;
  WatchOfTune& operator=(const WatchOfTune&) = delete;

 private:
  Job& job_;
};

// Takes the cells of the scheduler's nodes.
void CollectEntries(const Scheduler& scheduler, const TuneRequest& request, const Job& job,
                    TuneReport& report) {
  for (const auto& node : scheduler.nodes()) {
    for (auto& [bytes, decided] : node->TakeCells()) {
      if (decided.winner) {
        DatabaseEntry entry{job.fingerprint(), std::move(decided.cell), std::move(*decided.winner),
                            request.cotune_version, 0};
        if (!node->program().is_single_collective()) {
          entry.program_text = node->program().graph().ToText();
        }
        report.entries.push_back(std::move(entry));
      } else {
        report.cells_without_winner.push_back(std::move(decided));
      }
    }
  }
}

// Every cell of the request, as the scheduler will ask for it.
std::vector<Problem> ProblemsOf(const TuneRequest& request, const Job& job) {
  std::vector<Problem> problems;
  for (const TuneNode& node : request.nodes) {
    const MultiTemplate cells(node.program,
                              node.sizes_bytes.empty()
                                  ? job.settings().collective_multi_kernel_hints_bytes
                                  : node.sizes_bytes,
                              job.topology_digest());
    for (const uint64_t hint_bytes : cells.size_hints_bytes()) {
      problems.push_back(cells.ProblemAt(hint_bytes));
    }
  }
  return problems;
}

std::map<uint64_t, std::string> ProgramTextsOf(const TuneRequest& request) {
  std::map<uint64_t, std::string> texts;
  for (const TuneNode& node : request.nodes) {
    if (node.program.is_single_collective()) continue;
    texts.emplace(node.program.anchor().program_digest, node.program.graph().ToText());
  }
  return texts;
}

Status OpenToWrite(DatabaseCells& known, const TuneRequest& request, const Job& job) {
  if (Status opened = known.Open(); !opened) return opened;
  return known.CheckWritable(ProblemsOf(request, job));
}

// What rank 0 knows when the tune begins. Without a database where that one is optional and cannot
// be used.
Status OpenKnown(std::optional<DatabaseCells>& known, const TuneRequest& request, const Job& job,
                 EventSink& events) {
  Status opened = OpenToWrite(*known, request, job);
  if (const std::string lost = known->WhatJournalLost(); !lost.empty())
    EmitLine(events, Severity::kWarning, lost);
  if (opened) {
    for (const std::string& again : known->WhatIsMeasuredAgain(ProblemsOf(request, job))) {
      EmitLine(events, Severity::kWarning, again);
    }
  }
  if (opened || !request.database_is_optional) return opened;
  EmitLine(events, Severity::kWarning,
           "what is tuned is not kept for the next time: " + opened.error().ToText());
  known.emplace(DatabaseCells::Place{"", request.force, request.cotune_version, {}},
                job.fingerprint());
  return {};
}

// After a signal that ends the process, ranks end when they can: a rank that is missed by another
// has heard of the interrupt first, or was ended by it inside a call of a plugin.
Error AsInterrupt(Error error) {
  if (error.code != ErrorCode::kRankLost && error.code != ErrorCode::kAborted &&
      error.code != ErrorCode::kDeadline) {
    return error;
  }
  return {ErrorCode::kInterrupted, "the tune was interrupted", "", error.ToText(), "", {}};
}

// The writer says what becomes of what was measured when the user has ended the tune.
Error WithWhatIsKept(Error error, const DatabaseCells& known, bool is_writer,
                     const std::string& command) {
  if (error.code == ErrorCode::kRankLost && is_writer) {
    if (const std::string kept = known.WhatIsKept(); !kept.empty()) {
      error.next_step += (error.next_step.empty() ? "" : "; ") + kept;
    }
  }
  if (error.code != ErrorCode::kInterrupted) return error;
  // The ranks end in stages that do not know which command they work for.
  constexpr std::string_view kTune = "the tune was interrupted";
  if (error.what == kTune && command != "tune") {
    error.what = fmt::format("the {} was interrupted", command);
  }
  if (!is_writer) return error;
  if (known.IsWithoutCells()) {
    error.next_step = "nothing was measured yet";
    return error;
  }
  const std::string journal = known.JournalWithCells();
  error.next_step =
      journal.empty()
          ? "nothing of it is kept"
          : fmt::format("what was measured is kept in {}; the next tune continues from there",
                        journal);
  return error;
}

// Gives the reason for which the ranks stop together, on all of them: rank 0 could not keep a cell,
// or `error`, if the user has asked.
Error WhyStopped(Job& job, const DatabaseCells& known, const Error& error) {
  const std::optional<Error>& own = known.why_not_kept();
  const Status status = own ? Status(tl::make_unexpected(*own)) : Status{};
  const Status shared = ShareRankZeroStatus(job, status, "why the tune stops");
  const bool is_told = !shared && shared.error().code == ErrorCode::kEnvironment;
  return is_told ? shared.error() : error;
}

// On rank 0, whose failure all ranks learn of.
void SaveWhatIsNew(Job& job, DatabaseCells& known, TuneReport& report, EventSink& events) {
  const StageSpan stage(events, Stage::kSave);
  Result<bool> saved = false;
  if (job.rank() == 0 && report.outcome.committed) saved = known.Save();
  if (const std::string kept = known.WhatIsKept(); !saved && !kept.empty()) {
    Error failure = saved.error();
    failure.next_step += "; " + kept;
    saved = tl::make_unexpected(std::move(failure));
  }
  const Status save_status = saved ? Status{} : Status(Propagate(saved));
  if (Status shared = ShareRankZeroStatus(job, save_status, "save database"); !shared) {
    report.save_failure = shared.error();
  } else {
    report.saved = *saved;
  }
}

}  // namespace

Result<TuneReport> RunTune(Job& job, const TuneRequest& request) {
  TuneReport report;
  job.DropPlans();
  std::optional<DatabaseCells> known;  // outlives the stop listener
  StopListener stop(request.interrupted, known);
  TimesListener times;
  std::vector<StageObserver*> listeners = {&job.observer(), &times, &stop};
  if (request.listener != nullptr) listeners.push_back(request.listener);
  const StreamOfTune stream(job.clock(), std::move(listeners));
  EventStream& events = *stream.shared();
  std::optional<ScopedSpan> span(std::in_place, events, SpanKind::kTune, request.command);
  const int64_t begin_ns = job.clock().now_ns();
  known.emplace(DatabaseCells::Place{request.database_path, request.force, request.cotune_version,
                                     ProgramTextsOf(request), request.waits_to_save,
                                     request.ends_unless_kept},
                job.fingerprint());
  const bool is_writer = job.rank() == 0;
  const Status opened = is_writer ? OpenKnown(known, request, job, events) : Status{};
  COTUNE_RETURN_IF_ERROR(ShareRankZeroStatus(job, opened, "open database"));

  AgreedFields agreed = {{"cotune version", request.cotune_version},
                         {"force", request.force ? "true" : "false"},
                         {"command", request.command},
                         {"trace", request.is_traced ? "true" : "false"}};
  for (const auto& [name, value] : job.fingerprint().machine)
    agreed.emplace_back("machine " + name, value);
  for (const auto& [name, version] : job.fingerprint().backends)
    agreed.emplace_back("backend " + name, version);
  for (const auto& [name, build] : job.fingerprint().builds)
    agreed.emplace_back("build of plugin " + name, build);
  for (const auto& [name, text] : job.fingerprint().connections)
    agreed.emplace_back("connections of " + name, text);
  agreed.emplace_back("table in force", fmt::format("{} sizes, digest {:x}", request.base.size(),
                                                    Sha256Prefix(request.base.Serialize())));
  // Nodes that are tuned together are compared together. If they are tuned one by one, a rank with
  // fewer of them would leave before the others have come to theirs.
  if (!job.settings().enable_collective_multitemplate) {
    agreed.emplace_back("number of nodes", fmt::format("{}", request.nodes.size()));
  }
  const WatchOfTune watch(job, request);
  std::shared_ptr<PrepareNotes> notes;
  if (!request.database_path.empty()) {
    notes = std::make_shared<NotesInJournal>(request.database_path + ".journal", job.rank());
  }
  notes = std::make_shared<PrepareSpans>(stream.shared(), std::move(notes));
  Scheduler scheduler(
      {job.exchange(), job.groups(), job.device(), job.clock(), events,
       is_writer ? &*known : nullptr, &job.watchdog(), std::move(notes), ReadProcessorTimes},
      job.settings(), std::move(agreed), request.base);
  for (const TuneNode& node : request.nodes) {
    COTUNE_RETURN_IF_ERROR(
        scheduler.AddNode(node.program, node.sizes_bytes, job.topology_digest()));
  }
  Result<TuneOutcome> outcome = scheduler.Resolve();
  if (!outcome) {
    Error error = stop.IsInterrupted() ? AsInterrupt(outcome.error()) : outcome.error();
    // The ranks stop at the same step, so that all of them come to this one.
    if (request.ends_unless_kept && outcome.error().code == ErrorCode::kInterrupted) {
      error = WhyStopped(job, *known, error);
    }
    return tl::make_unexpected(
        WithWhatIsKept(std::move(error), *known, is_writer, request.command));
  }
  report.outcome = std::move(*outcome);
  CollectEntries(scheduler, request, job, report);

  SaveWhatIsNew(job, *known, report, events);
  // A rank may be late because of the interrupt, and the user asked for no more than an end.
  if (!report.outcome.late_ranks.empty() && stop.IsInterrupted()) {
    Error interrupted{ErrorCode::kInterrupted, "the tune was interrupted", "", "", "", {}};
    return tl::make_unexpected(
        WithWhatIsKept(std::move(interrupted), *known, is_writer, request.command));
  }
  report.elapsed_ns = job.clock().now_ns() - begin_ns;
  span.reset();
  report.times = times.times();
  return report;
}

}  // namespace cotune
