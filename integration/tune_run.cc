#include "integration/tune_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/event_sink.h"
#include "core/base/sha256.h"
#include "core/choice/choice_caller.h"
#include "core/choice/multi_template.h"
#include "core/choice/precompile.h"
#include "core/choice/prepare_spans.h"
#include "core/database/tuned_database_file.h"
#include "core/database/tuning_journal.h"
#include "core/selection/event_stream.h"
#include "fmt/format.h"
#include "integration/rank_zero_status.h"

namespace cotune {
namespace {

// The database and journal of rank 0; on other ranks it knows nothing.
class DatabaseCells final : public KnownCells {
 public:
  DatabaseCells(const TuneRequest& request, const Fingerprint& fingerprint)
      : request_(request), fingerprint_(fingerprint) {}

  // Loads what is there and takes the lock that keeps a second tune out. A place that cannot be
  // written is no failure yet: CheckWritable says whether it is one.
  Status Open() {
    if (request_.database_path.empty()) return {};
    Result<std::unique_ptr<TuningJournal>> journal = TuningJournal::Open(
        request_.database_path, request_.force ? JournalKind::kForcedTune : JournalKind::kTune);
    if (journal) {
      journal_ = std::move(*journal);
    } else if (journal.error().code == ErrorCode::kEnvironment) {
      write_failure_ = journal.error();
    } else {
      return Propagate(journal);
    }
    Result<TunedDatabase> loaded = TunedDatabase::Load(request_.database_path);
    if (loaded) {
      database_ = std::move(*loaded);
    } else if (loaded.error().code != ErrorCode::kEnvironment || FileExists()) {
      return Propagate(loaded);
    }
    if (journal_ != nullptr) {
      for (const DatabaseEntry& entry : journal_->replayed()) fresh_.Put(entry);
      kept_cells_ = fresh_.size();
      lost_bytes_ = journal_->lost_bytes();
    }
    const bool was_forced = journal_ != nullptr && journal_->kind() == JournalKind::kForcedTune;
    const std::string folder = FolderOf(request_.database_path);
    if (journal_ != nullptr && faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0) {
      write_failure_ = Error{
          ErrorCode::kEnvironment, "the folder of the tuned database cannot be written", folder,
          std::strerror(errno),    "check its permissions, or name another with --db",   {}};
      journal_.reset();
    }
    if (!request_.force) {
      MergeFresh(was_forced);
    } else if (!was_forced) {
      // Choices that have ended an earlier tune are tried again.
      if (journal_ != nullptr) journal_->ForgetBlames();
      // A tune without force was interrupted: what it has measured is kept, and measured anew.
      const Result<bool> saved = Save(false);
      if (!saved) return Propagate(saved);
      fresh_ = {};
      kept_cells_ = 0;
      if (journal_ == nullptr) return {};
      // Also one without a cell: what is appended from here on is of a forced tune.
      return journal_->Clear();
    }
    return {};
  }

  // Why the tune cannot begin: `problems` (with their program digests) are not all known, and what
  // is measured could not be kept.
  Status CheckWritable(const std::vector<std::pair<Problem, uint64_t>>& problems) {
    if (!write_failure_) return {};
    const auto missing = std::count_if(problems.begin(), problems.end(), [&](const auto& each) {
      return !Find(each.first, each.second).has_value();
    });
    if (missing == 0) return {};
    Error error = *write_failure_;
    error.what =
        fmt::format("{} of {} cells have to be measured, and their results could not be kept: {}",
                    missing, problems.size(), error.what);
    return tl::make_unexpected(std::move(error));
  }

  std::optional<CellResult> Find(const Problem& problem, uint64_t program_digest) override {
    // With force only what this tune itself has measured before it was interrupted counts.
    const TunedDatabase& where = request_.force ? fresh_ : database_;
    tl::expected<DatabaseEntry, Miss> entry = where.Find(problem, program_digest, fingerprint_);
    if (!entry) return std::nullopt;
    return std::move(entry->cell);
  }

  std::vector<LeftOutChoice> Begin() override {
    if (journal_ == nullptr) return {};
    has_begun_ = true;
    if (Status begun = journal_->Begin(); !begun) {
      // The first cell that is measured says so.
      return {};
    }
    // Processes vanish for other reasons too, so that one end without a known cause is no proof.
    constexpr int kVanishedMax = 2;
    std::vector<LeftOutChoice> left_out;
    for (const JournalBlame& blame : journal_->blames()) {
      const auto vanished = std::count_if(
          journal_->blames().begin(), journal_->blames().end(), [&](const JournalBlame& other) {
            return !other.is_certain() && other.attempt.IsOfSameChoice(blame.attempt);
          });
      const auto is_same = [&](const LeftOutChoice& other) {
        return other.problem_class == blame.attempt.problem_class &&
               other.choice == blame.attempt.choice;
      };
      if (!blame.is_certain() && vanished < kVanishedMax) continue;
      if (std::any_of(left_out.begin(), left_out.end(), is_same)) continue;
      left_out.push_back({blame.attempt.problem_class, blame.attempt.choice, ReasonOf(blame)});
    }
    return left_out;
  }

  void NoteAttempt(const Problem& problem, const ChoiceId* choice) override {
    if (journal_ == nullptr || has_failed_to_append_) return;
    // A note that is lost costs this tune nothing; what is measured says that it cannot be written.
    static_cast<void>(journal_->NoteAttempt(
        {ToText(problem.cls), problem.bytes(), choice == nullptr ? "" : choice->text()}));
  }

  Status Record(const CellResult& cell, const Winner& winner) override {
    if (journal_ == nullptr) return {};
    DatabaseEntry entry{fingerprint_, cell, winner, request_.cotune_version, std::time(nullptr)};
    Status appended = journal_->Append(entry);
    recorded_.Put(entry);
    fresh_.Put(std::move(entry));
    if (appended) ++kept_cells_;
    // A full disk fails for every cell alike: once is enough.
    if (appended || std::exchange(has_failed_to_append_, true)) return {};
    return appended;
  }

  // This text tells which measured cells the journal keeps when they cannot be saved; it is ""
  // where there are none.
  std::string WhatIsKept() const {
    if (fresh_.empty()) return "";
    if (kept_cells_ == 0) return "nothing of what was measured is kept";
    return fmt::format(
        "{} of {} measured cells are kept in {}.journal, and the next tune continues from there",
        kept_cells_, fresh_.size(), request_.database_path);
  }

  // What the user should know of the journal that an earlier tune has left; "": nothing.
  std::string WhatJournalLost() const {
    if (lost_bytes_ == 0) return "";
    return fmt::format(
        "{} bytes of {}.journal are left out: a write was cut off, or the file was damaged; cells "
        "that they held are measured again",
        lost_bytes_, request_.database_path);
  }

  // The file that keeps what was measured until it is saved; "": nothing is kept.
  std::string JournalWithCells() const {
    const bool has_cells = journal_ != nullptr && !fresh_.empty() && !has_failed_to_append_;
    return has_cells ? request_.database_path + ".journal" : "";
  }

  // Writes the database with everything new in it. Nothing new: nothing is written.
  Result<bool> Save() { return Save(request_.force); }

 private:
  Result<bool> Save(bool is_forced) {
    if (journal_ == nullptr) return false;
    if (fresh_.empty()) {
      const Status cleared = has_begun_ ? journal_->Clear() : Status();
      if (!cleared) return Propagate(cleared);
      return false;
    }
    MergeFresh(is_forced);
    // A cell that the database had is measured anew only where its winner is left out: that one
    // goes, whatever the times of the two say.
    database_.Replace(recorded_);
    if (Status saved = database_.Save(request_.database_path); !saved) return Propagate(saved);
    if (Status cleared = journal_->Clear(); !cleared) return Propagate(cleared);
    return true;
  }

  // The user who forces a measurement wants it whatever the file says: its old one may be of a
  // machine whose clock ran ahead.
  void MergeFresh(bool is_forced) {
    if (is_forced) {
      database_.Replace(fresh_);
    } else {
      database_.Merge(fresh_);
    }
  }

  bool FileExists() const {
    FILE* file = std::fopen(request_.database_path.c_str(), "re");
    if (file != nullptr) std::fclose(file);
    return file != nullptr || errno != ENOENT;
  }

  std::string ReasonOf(const JournalBlame& blame) const {
    const std::string how =
        blame.is_certain()
            ? fmt::format("{} on rank {}", blame.how, blame.rank)
            : std::string(
                  "the processes of two tunes were gone while it was made ready or ran for the "
                  "first time");
    return fmt::format("it has ended a tune at {} bytes: {}; {}remove {}.journal to try it again",
                       blame.attempt.bytes, how, request_.force ? "" : "use --force or ",
                       request_.database_path);
  }

  const TuneRequest& request_;
  const Fingerprint& fingerprint_;
  std::unique_ptr<TuningJournal> journal_;  // null: nothing is written
  std::optional<Error> write_failure_;
  bool has_failed_to_append_ = false;
  bool has_begun_ = false;
  size_t kept_cells_ = 0;    // of fresh_, in the journal
  uint64_t lost_bytes_ = 0;  // of the journal
  TunedDatabase database_;
  TunedDatabase fresh_;     // measured by this tune, or by the one that was interrupted
  TunedDatabase recorded_;  // measured by this tune
};

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

// Says whether the user asked to stop.
class StopListener final : public StageObserver {
 public:
  explicit StopListener(const std::atomic<bool>* interrupted) : interrupted_(interrupted) {}
  bool StopRequested() override { return interrupted_ != nullptr && interrupted_->load(); }

 private:
  const std::atomic<bool>* interrupted_;
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

void CollectEntries(const Scheduler& scheduler, const TuneRequest& request, const Job& job,
                    TuneReport& report) {
  for (const auto& node : scheduler.nodes()) {
    for (const auto& [bytes, decided] : node->cells()) {
      if (decided.winner) {
        report.entries.push_back(DatabaseEntry{job.fingerprint(), decided.cell, *decided.winner,
                                               request.cotune_version, 0});
      } else {
        report.cells_without_winner.push_back(decided);
      }
    }
  }
}

// Every cell of the request with the digest of its program, as the scheduler will ask for it.
Result<std::vector<std::pair<Problem, uint64_t>>> ProblemsOf(const TuneRequest& request,
                                                             const Job& job) {
  std::vector<std::pair<Problem, uint64_t>> problems;
  for (const TuneNode& node : request.nodes) {
    Result<Program> program = Program::SingleCollective(node.cls);
    if (!program) return Propagate(program);
    const MultiTemplate cells(std::move(*program),
                              node.sizes_bytes.empty()
                                  ? job.settings().collective_multi_kernel_hints_bytes
                                  : node.sizes_bytes,
                              job.topology_digest());
    for (const uint64_t hint_bytes : cells.size_hints_bytes()) {
      problems.emplace_back(cells.ProblemAt(hint_bytes), cells.dispatch_digest());
    }
  }
  return problems;
}

Status OpenToWrite(DatabaseCells& known, const TuneRequest& request, const Job& job) {
  if (Status opened = known.Open(); !opened) return opened;
  const auto problems = ProblemsOf(request, job);
  if (!problems) return Propagate(problems);
  return known.CheckWritable(*problems);
}

// After the user has asked to stop, ranks end when they can: a rank that is missed by another has
// heard of the interrupt first, or was ended by it inside a call of a plugin.
Error AsInterrupt(Error error) {
  if (error.code != ErrorCode::kRankLost && error.code != ErrorCode::kAborted &&
      error.code != ErrorCode::kDeadline) {
    return error;
  }
  return {ErrorCode::kInterrupted, "the tune was interrupted", "", error.ToText(), "", {}};
}

// The writer says what becomes of what was measured when the user has ended the tune.
Error WithWhatIsKept(Error error, const DatabaseCells& known, bool is_writer) {
  if (error.code != ErrorCode::kInterrupted || !is_writer) return error;
  const std::string journal = known.JournalWithCells();
  error.next_step =
      journal.empty()
          ? "nothing of it is kept"
          : fmt::format("what was measured is kept in {}; the next tune continues from there",
                        journal);
  return error;
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
  StopListener stop(request.interrupted);
  TimesListener times;
  const StreamOfTune stream(job.clock(), {&job.observer(), &times, &stop});
  EventStream& events = *stream.shared();
  std::optional<ScopedSpan> span(std::in_place, events, SpanKind::kTune, request.command);
  const int64_t begin_ns = job.clock().now_ns();
  DatabaseCells known(request, job.fingerprint());
  const bool is_writer = job.rank() == 0;
  const Status opened = is_writer ? OpenToWrite(known, request, job) : Status{};
  if (const std::string lost = known.WhatJournalLost(); !lost.empty())
    EmitLine(events, Severity::kWarning, lost);
  if (Status shared = ShareRankZeroStatus(job, opened, "open database"); !shared)
    return Propagate(shared);

  AgreedFields agreed = {{"cotune version", request.cotune_version},
                         {"force", request.force ? "true" : "false"},
                         {"command", request.command},
                         {"trace", request.is_traced ? "true" : "false"}};
  for (const auto& [name, value] : job.fingerprint().machine)
    agreed.emplace_back("machine " + name, value);
  for (const auto& [name, version] : job.fingerprint().backends)
    agreed.emplace_back("backend " + name, version);
  agreed.emplace_back("table in force", fmt::format("{} sizes, digest {:x}", request.base.size(),
                                                    Sha256Prefix(request.base.Serialize())));
  const WatchOfTune watch(job, request);
  std::shared_ptr<PrepareNotes> notes;
  if (!request.database_path.empty()) {
    notes = std::make_shared<NotesInJournal>(request.database_path + ".journal", job.rank());
  }
  notes = std::make_shared<PrepareSpans>(stream.shared(), std::move(notes));
  Scheduler scheduler({job.exchange(), job.groups(), job.device(), job.clock(), events,
                       is_writer ? &known : nullptr, &job.watchdog(), std::move(notes)},
                      job.settings(), std::move(agreed), request.base);
  for (const TuneNode& node : request.nodes) {
    Result<Program> program = Program::SingleCollective(node.cls);
    if (!program) return Propagate(program);
    if (Status added =
            scheduler.AddNode(std::move(*program), node.sizes_bytes, job.topology_digest());
        !added) {
      return Propagate(added);
    }
  }
  Result<TuneOutcome> outcome = scheduler.Resolve();
  if (!outcome) {
    Error error = events.StopRequested() ? AsInterrupt(outcome.error()) : outcome.error();
    return tl::make_unexpected(WithWhatIsKept(std::move(error), known, is_writer));
  }
  report.outcome = std::move(*outcome);
  CollectEntries(scheduler, request, job, report);

  SaveWhatIsNew(job, known, report, events);
  // A rank may be late because of the interrupt, and the user asked for no more than an end.
  if (!report.outcome.late_ranks.empty() && events.StopRequested()) {
    Error interrupted{ErrorCode::kInterrupted, "the tune was interrupted", "", "", "", {}};
    return tl::make_unexpected(WithWhatIsKept(std::move(interrupted), known, is_writer));
  }
  report.elapsed_ns = job.clock().now_ns() - begin_ns;
  span.reset();
  report.times = times.times();
  return report;
}

}  // namespace cotune
