#include "core/database/tuning_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/unique_fd.h"
#include "core/database/tuned_database_file.h"
#include "core/database/tuned_database_lock.h"
#include "core/database/tuning_journal_format.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr uint64_t kJournalBytesMax = 1ull << 30;

tl::unexpected<Error> JournalFailure(std::string what, const std::string& path) {
  return Fail(ErrorCode::kEnvironment, std::move(what), path, std::strerror(errno),
              "check free space and permissions");
}

class FileJournal final : public TuningJournal {
 public:
  FileJournal(DatabaseLock lock, std::string path, JournalKind kind)
      : lock_(std::move(lock)), path_(std::move(path)), new_kind_(kind), kind_(kind) {}

  // Reads what an earlier process left. A missing file is an empty journal.
  Status Replay() {
    struct stat status {};
    if (lstat(path_.c_str(), &status) != 0 && errno == ENOENT) return {};
    COTUNE_TRY(std::string bytes, ReadDatabaseFile(path_, "journal", kJournalBytesMax));
    Result<JournalContent> content = DecodeJournal(bytes);
    if (!content) {
      Error error = content.error();
      error.where = error.where.empty() ? path_ : path_ + ", " + error.where;
      return tl::make_unexpected(std::move(error));
    }
    replayed_ = std::move(content->entries);
    blames_ = std::move(content->blames);
    for (const JournalPrepare& open : content->open_prepares) Suspect(open.attempt);
    if (content->open_attempt) Suspect(*content->open_attempt);
    has_header_ = content->has_header;
    if (has_header_) kind_ = content->kind;
    builds_in_file_ = std::move(content->builds);
    lost_bytes_ = content->lost_bytes;
    return {};
  }

  JournalKind kind() const override { return kind_; }
  const std::vector<DatabaseEntry>& replayed() const override { return replayed_; }
  uint64_t lost_bytes() const override { return lost_bytes_; }

  const std::vector<JournalBlame>& blames() const override { return blames_; }
  void ForgetBlames() override { blames_.clear(); }

  Status Begin(const PluginBuilds& builds) override {
    builds_ = builds;
    Notes notes{builds_in_file_};
    for (JournalAttempt& attempt : std::exchange(left_open_, {})) {
      blames_.push_back({std::move(attempt), 0, ""});
      notes.Add(blames_.back().attempt.builds, EncodeJournalRecord(blames_.back()));
    }
    // The notes of other ranks follow, which have no builds of their own.
    notes.Add(builds_, "");
    return Write(notes);
  }

  Status NoteAttempt(const JournalAttempt& attempt) override {
    Notes notes{builds_in_file_};
    notes.Add(builds_, EncodeJournalRecord(attempt));
    return Write(notes);
  }

  Status Append(const DatabaseEntry& entry) override {
    DropBlamesOf(entry.cell, blames_);
    return Write(EncodeJournalRecord(entry), true);
  }

  Status Clear() override {
    fd_.Reset();
    has_header_ = false;
    // The blames that are left belong to no tune that goes on.
    kind_ = blames_.empty() ? new_kind_ : JournalKind::kTune;
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
      return JournalFailure("the journal cannot be removed", path_);
    }
    builds_in_file_.clear();
    Notes notes;
    for (const JournalBlame& blame : blames_) {
      notes.Add(blame.attempt.builds, EncodeJournalRecord(blame));
    }
    if (!blames_.empty()) COTUNE_RETURN_IF_ERROR(Write(notes));
    return SyncFolder(FolderOf(path_));
  }

 private:
  // Records that are written together, each after the builds that it is of.
  struct Notes {
    PluginBuilds builds;  // that hold at the end
    std::string records{};
    void Add(const PluginBuilds& of_record, const std::string& record) {
      if (of_record != builds) records += EncodeJournalRecord(JournalBuilds{of_record});
      builds = of_record;
      records += record;
    }
  };
  Status Write(const Notes& notes) {
    COTUNE_RETURN_IF_ERROR(Write(notes.records, false));
    builds_in_file_ = notes.builds;
    return {};
  }

  Status Write(const std::string& record, bool is_durable) {
    if (!fd_.is_open()) {
      if (Status opened = OpenFile(); !opened) return opened;
    }
    if (!WriteAll(fd_.get(), record) || (is_durable && fdatasync(fd_.get()) != 0)) {
      return JournalFailure("a measurement cannot be written to the journal", path_);
    }
    if (is_durable && !has_durable_name_) {
      COTUNE_RETURN_IF_ERROR(SyncFolder(FolderOf(path_)));
      has_durable_name_ = true;
    }
    return {};
  }

  // One end counts once for a choice, at however many sizes and on however many ranks it was under
  // way.
  void Suspect(const JournalAttempt& attempt) {
    const bool is_known =
        std::any_of(left_open_.begin(), left_open_.end(),
                    [&](const JournalAttempt& other) { return other.IsOfSameChoice(attempt); });
    if (!is_known) left_open_.push_back(attempt);
  }

  // Opens for appending. Nothing is cut off, ever: other ranks append to the file, also after their
  // rank 0 has gone.
  Status OpenFile() {
    if (!has_header_) {
      if (Status made = MakeFile(); !made) return made;
      has_header_ = true;
    }
    fd_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
    return fd_.is_open() ? Status() : JournalFailure("the journal cannot be opened", path_);
  }

  // Makes a file that has the header, in place of one without. It gets its name when it is whole;
  // the name is made durable with the first cell, before which the file has nothing to keep.
  Status MakeFile() {
    const std::string unnamed = path_ + ".new";
    const UniqueFd fd(
        open(unnamed.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!fd.is_open()) return JournalFailure("the journal cannot be opened", unnamed);
    if (!WriteAll(fd.get(), JournalHeader(kind_)) || fdatasync(fd.get()) != 0 ||
        rename(unnamed.c_str(), path_.c_str()) != 0) {
      Status failure = JournalFailure("the journal cannot be begun", unnamed);
      unlink(unnamed.c_str());
      return failure;
    }
    has_durable_name_ = false;
    return {};
  }

  DatabaseLock lock_;
  std::string path_;
  JournalKind new_kind_;
  JournalKind kind_;
  UniqueFd fd_;
  std::vector<DatabaseEntry> replayed_;
  std::vector<JournalBlame> blames_;
  std::vector<JournalAttempt> left_open_;  // by the last tune
  PluginBuilds builds_;                    // this tune's
  PluginBuilds builds_in_file_;            // the last ones there
  bool has_header_ = false;                // the file
  bool has_durable_name_ = false;          // the file, for certain
  uint64_t lost_bytes_ = 0;
};

// Safe in a signal handler.
bool AppendRecord(const char* journal_path, std::string_view record) {
  const int file = open(journal_path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  // Readers leave a record out that is cut off.
  const ssize_t written = write(file, record.data(), record.size());
  close(file);
  return written == static_cast<ssize_t>(record.size());
}

}  // namespace

bool AppendBlame(const char* journal_path, const BlameText& blame) {
  // Larger than a blame gets: classes and choices are at most a few hundred bytes long.
  std::array<char, 4096> record{};
  const size_t size = EncodeBlameRecord(blame, record);
  return size > 0 && AppendRecord(journal_path, {record.data(), size});
}

void AppendPrepare(const std::string& journal_path, const JournalPrepare& prepare) {
  AppendRecord(journal_path.c_str(), EncodeJournalRecord(prepare));
}

void AppendStop(const char* journal_path, std::string_view record) {
  AppendRecord(journal_path, record);
}

std::vector<JournalAttempt> SuspectsOf(const std::string& journal_path) {
  std::vector<JournalAttempt> suspects;
  const Result<std::string> bytes = ReadDatabaseFile(journal_path, "journal", kJournalBytesMax);
  if (!bytes) return suspects;
  const Result<JournalContent> content = DecodeJournal(*bytes);
  if (!content) return suspects;
  for (const JournalBlame& blame : content->blames) {
    if (blame.is_certain() || blame.attempt.IsOfOtherBuild(content->builds)) continue;
    suspects.push_back(blame.attempt);
  }
  return suspects;
}

Result<std::unique_ptr<TuningJournal>> TuningJournal::Open(const std::string& database_path,
                                                           JournalKind kind) {
  COTUNE_TRY(DatabaseLock lock, DatabaseLock::Acquire(database_path));
  auto journal = std::make_unique<FileJournal>(std::move(lock), database_path + ".journal", kind);
  COTUNE_RETURN_IF_ERROR(journal->Replay());
  return journal;
}

}  // namespace cotune
