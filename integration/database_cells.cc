#include "integration/database_cells.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include "core/base/counted.h"
#include "core/database/tuned_database_file.h"
#include "core/database/tuned_database_lock.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

Status DatabaseCells::Open() {
  if (place_.path.empty()) return {};
  Result<std::unique_ptr<TuningJournal>> journal = TuningJournal::Open(
      place_.path, place_.force ? JournalKind::kForcedTune : JournalKind::kTune);
  if (journal) {
    journal_ = std::move(*journal);
  } else if (journal.error().code == ErrorCode::kEnvironment) {
    write_failure_ = journal.error();
  } else if (place_.waits_to_save && DatabaseLock::IsHeld(journal.error())) {
    is_with_other_ = true;
  } else {
    return Propagate(journal);
  }
  Result<TunedDatabase> loaded = TunedDatabase::Load(place_.path);
  if (loaded) {
    database_ = std::move(*loaded);
  } else if (loaded.error().code != ErrorCode::kEnvironment || FileExists()) {
    return Propagate(loaded);
  }
  if (journal_ != nullptr) {
    TakeReplayed();
    kept_cells_ = fresh_.size();
    lost_bytes_ = journal_->lost_bytes();
  }
  const bool was_forced = journal_ != nullptr && journal_->kind() == JournalKind::kForcedTune;
  const std::string folder = FolderOf(place_.path);
  if (journal_ != nullptr && faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0) {
    write_failure_ =
        Error{ErrorCode::kEnvironment, "the folder of the tuned database cannot be written", folder,
              std::strerror(errno),    "check its permissions, or name another with --db",   {}};
    journal_.reset();
  }
  if (!place_.force) {
    MergeFresh(was_forced);
  } else if (!was_forced) {
    // Choices that have ended an earlier tune are tried again.
    if (journal_ != nullptr) journal_->ForgetBlames();
    // A tune without force was interrupted: what it has measured is kept, and measured anew.
    COTUNE_RETURN_IF_ERROR(Save(false));
    fresh_ = {};
    kept_cells_ = 0;
    if (journal_ == nullptr) return {};
    // Also one without a cell: what is appended from here on is of a forced tune.
    return journal_->Clear();
  }
  return {};
}

Status DatabaseCells::CheckWritable(const std::vector<Problem>& problems) {
  if (!write_failure_) return {};
  const auto missing = std::count_if(problems.begin(), problems.end(),
                                     [&](const Problem& each) { return !Find(each).has_value(); });
  if (missing == 0) return {};
  Error error = *write_failure_;
  // Without its folder there is no database that could have any of them.
  if (access(FolderOf(place_.path).c_str(), F_OK) != 0)
    return tl::make_unexpected(std::move(error));
  error.what =
      fmt::format("{} of {} cells have to be measured, and their results could not be kept: {}",
                  missing, problems.size(), error.what);
  return tl::make_unexpected(std::move(error));
}

std::optional<CellResult> DatabaseCells::Find(const Problem& problem) {
  // With force only what this tune itself has measured before it was interrupted counts.
  const TunedDatabase& where = place_.force ? fresh_ : database_;
  const tl::expected<const DatabaseRow*, Miss> row = where.FindRow(problem, fingerprint_);
  if (!row || (*row)->is_unsteady ||
      !BackendsThatDidNotRace(*(*row)->fingerprint, fingerprint_).empty()) {
    return std::nullopt;
  }
  Result<DatabaseEntry> entry = (*row)->Decode();
  if (!entry) return std::nullopt;
  // The winner is decided anew, by the rules of this tune: among what can run here.
  std::erase_if(entry->cell.verdicts,
                [this](const Verdict& verdict) { return !CanRunHere(verdict.id); });
  return std::move(entry->cell);
}

std::vector<std::string> DatabaseCells::WhatIsMeasuredAgain(
    const std::vector<Problem>& problems) const {
  if (place_.force) return {};
  int64_t without_backends = 0;
  std::set<std::string> backends;
  std::map<std::string, int64_t> other_builds;  // the differences and their counts
  std::map<std::string, int64_t> other_connections;
  for (const Problem& problem : problems) {
    const auto row = database_.FindRow(problem, fingerprint_);
    if (!row && row.error().reason == MissReason::kConnectionsDiffer) {
      ++other_connections[row.error().detail];
    }
    if (!row && row.error().reason == MissReason::kBackendBuildDiffers) {
      ++other_builds[row.error().detail];
    }
    if (!row) continue;
    const std::vector<std::string> absent =
        BackendsThatDidNotRace(*(*row)->fingerprint, fingerprint_);
    backends.insert(absent.begin(), absent.end());
    if (!absent.empty()) ++without_backends;
  }
  std::vector<std::string> texts;
  const auto say = [&texts](int64_t cells, const std::string& how) {
    texts.push_back(fmt::format("{} of the database {} {}: measured again", Counted(cells, "cell"),
                                cells == 1 ? "was" : "were", how));
  };
  if (without_backends > 0) {
    say(without_backends, fmt::format("measured without {}", fmt::join(backends, ", ")));
  }
  for (const auto& [detail, cells] : other_builds) say(cells, detail);
  for (const auto& [detail, cells] : other_connections) {
    say(cells, fmt::format("measured with other connections ({})", detail));
  }
  return texts;
}

std::vector<LeftOutChoice> DatabaseCells::Begin() {
  if (journal_ == nullptr) return {};
  has_begun_ = true;
  if (Status begun = journal_->Begin(fingerprint_.builds); !begun) {
    // The first cell that is measured says so.
    return {};
  }
  // Processes vanish for other reasons too, so that one end without a known cause is no proof.
  constexpr int kVanishedMax = 2;
  std::vector<JournalBlame> blames = journal_->blames();
  std::erase_if(blames, [this](const JournalBlame& blame) { return !CanEndThisTune(blame); });
  std::vector<LeftOutChoice> left_out;
  for (const JournalBlame& blame : blames) {
    const auto vanished = std::count_if(blames.begin(), blames.end(), [&](const auto& other) {
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

bool DatabaseCells::CanEndThisTune(const JournalBlame& blame) const {
  if (blame.attempt.IsOfOtherBuild(fingerprint_.builds)) return false;
  const Result<ChoiceId> choice = ChoiceId::Parse(blame.attempt.choice);
  return choice && CanRunHere(*choice);
}

bool DatabaseCells::CanRunHere(const ChoiceId& choice) const {
  const auto is_here = [this](const ChoiceId& step) {
    return std::any_of(fingerprint_.backends.begin(), fingerprint_.backends.end(),
                       [&](const auto& backend) { return backend.first == step.backend(); });
  };
  if (!choice.has_steps()) return is_here(choice);
  const std::vector<ChoiceId> steps = choice.steps();
  return std::all_of(steps.begin(), steps.end(), is_here);
}

void DatabaseCells::NoteAttempt(const Problem& problem, const ChoiceId* choice) {
  if (journal_ == nullptr || has_failed_to_append_) return;
  // A note that is lost costs this tune nothing; what is measured says that it cannot be written.
  static_cast<void>(journal_->NoteAttempt(
      {ToText(problem.cls), problem.bytes(), choice == nullptr ? "" : choice->text()}));
}

Status DatabaseCells::Record(const CellResult& cell, const Winner& winner) {
  if (journal_ == nullptr && !is_with_other_) return {};
  DatabaseEntry entry{fingerprint_, cell, winner, place_.cotune_version, std::time(nullptr)};
  const auto program = place_.program_texts.find(cell.problem.cls.program_digest);
  if (program != place_.program_texts.end()) entry.program_text = program->second;
  // An unsteady cell takes no other tune's place.
  if (!cell.is_unsteady) recorded_.Put(entry);
  if (journal_ == nullptr) {
    fresh_.Put(std::move(entry));
    return {};
  }
  Status appended = journal_->Append(entry);
  fresh_.Put(std::move(entry));
  if (appended) ++kept_cells_;
  // A full disk fails for every cell alike: once is enough.
  if (appended || std::exchange(has_failed_to_append_, true)) return {};
  if (!place_.ends_unless_kept) return appended;
  why_not_kept_ = appended.error();
  why_not_kept_->next_step += "; " + WhatIsKept();
  return {};
}

std::string DatabaseCells::WhatIsKept() const {
  if (fresh_.empty()) return "";
  if (kept_cells_ == 0) return "nothing of what was measured is kept";
  return fmt::format(
      "{} of {} measured cells are kept in {}.journal, and the next tune continues from there",
      kept_cells_, fresh_.size(), place_.path);
}

std::string DatabaseCells::WhatJournalLost() const {
  if (lost_bytes_ == 0) return "";
  return fmt::format(
      "{} bytes of {}.journal are left out: a write was cut off, or the file was damaged; cells "
      "that they held are measured again",
      lost_bytes_, place_.path);
}

std::string DatabaseCells::JournalWithCells() const {
  const bool has_cells = journal_ != nullptr && !fresh_.empty() && !has_failed_to_append_;
  return has_cells ? place_.path + ".journal" : "";
}

Result<bool> DatabaseCells::Save() { return Save(place_.force); }

Status DatabaseCells::TakeAfterOther() {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::nanoseconds(kSaveWaitNs);
  Result<std::unique_ptr<TuningJournal>> journal;
  while (true) {
    journal = TuningJournal::Open(place_.path,
                                  place_.force ? JournalKind::kForcedTune : JournalKind::kTune);
    const bool is_held = !journal && DatabaseLock::IsHeld(journal.error());
    if (!is_held || steady_clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  COTUNE_RETURN_IF_ERROR(journal);
  Result<TunedDatabase> loaded = TunedDatabase::Load(place_.path);
  if (!loaded && FileExists()) return Propagate(loaded);
  journal_ = std::move(*journal);
  if (loaded) database_ = std::move(*loaded);
  // If the other tune was interrupted, its journal has what it measured and did not save.
  for (const DatabaseEntry& entry : journal_->replayed()) database_.Put(entry);
  is_with_other_ = false;
  return {};
}

Result<bool> DatabaseCells::Save(bool is_forced) {
  if (is_with_other_ && !fresh_.empty()) {
    COTUNE_RETURN_IF_ERROR(TakeAfterOther());
  }
  if (journal_ == nullptr) return false;
  if (fresh_.empty()) {
    COTUNE_RETURN_IF_ERROR(has_begun_ ? journal_->Clear() : Status());
    return false;
  }
  fresh_.DropOtherBuilds(recorded_);
  MergeFresh(is_forced);
  // A cell that the database had is measured anew only where its winner is left out: that one
  // goes, whatever the times of the two say.
  database_.Replace(recorded_);
  // A plugin that is rebuilt every day must not leave its results of every day.
  database_.DropOtherBuilds(recorded_);
  COTUNE_RETURN_IF_ERROR(database_.Save(place_.path));
  COTUNE_RETURN_IF_ERROR(journal_->Clear());
  return true;
}

void DatabaseCells::TakeReplayed() {
  TunedDatabase of_one_tune;  // or of several with the same fingerprint
  const auto take = [this, &of_one_tune] {
    fresh_.DropOtherBuilds(of_one_tune);
    fresh_.Merge(std::exchange(of_one_tune, {}));
  };
  for (const DatabaseEntry& entry : journal_->replayed()) {
    const bool is_of_other =
        !of_one_tune.empty() && *of_one_tune.rows().front().fingerprint != entry.fingerprint;
    if (is_of_other) take();
    of_one_tune.Put(entry);
  }
  take();
}

void DatabaseCells::MergeFresh(bool is_forced) {
  if (is_forced) {
    database_.Replace(fresh_);
  } else {
    database_.Merge(fresh_);
  }
}

bool DatabaseCells::FileExists() const {
  FILE* file = std::fopen(place_.path.c_str(), "re");
  if (file != nullptr) std::fclose(file);
  return file != nullptr || errno != ENOENT;
}

std::string DatabaseCells::ReasonOf(const JournalBlame& blame) const {
  const std::string how =
      blame.is_certain()
          ? fmt::format("{} on rank {}", blame.how, blame.rank)
          : std::string(
                "the processes of two tunes were gone while it was made ready or ran for the "
                "first time");
  return fmt::format("it has ended a tune at {} bytes: {}; {}remove {}.journal to try it again",
                     blame.attempt.bytes, how, place_.force ? "" : "use --force or ", place_.path);
}

}  // namespace cotune
