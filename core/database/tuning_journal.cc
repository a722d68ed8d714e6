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
              "check free space and permissions; what was measured before is kept");
}

class FileJournal final : public TuningJournal {
 public:
  FileJournal(DatabaseLock lock, std::string path, JournalKind kind)
      : lock_(std::move(lock)), path_(std::move(path)), new_kind_(kind), kind_(kind) {}

  // Reads what an earlier process left. A missing file is an empty journal.
  Status Replay() {
    struct stat status {};
    if (lstat(path_.c_str(), &status) != 0 && errno == ENOENT) return {};
    Result<std::string> bytes = ReadDatabaseFile(path_, "journal", kJournalBytesMax);
    if (!bytes) return Propagate(bytes);
    Result<JournalContent> content = DecodeJournal(*bytes);
    if (!content) {
      Error error = content.error();
      error.where = error.where.empty() ? path_ : path_ + ", " + error.where;
      return tl::make_unexpected(std::move(error));
    }
    replayed_ = std::move(content->entries);
    blames_ = std::move(content->blames);
    for (const JournalPrepare& open : content->open_prepares) Suspect(open.attempt);
    if (content->open_attempt) Suspect(*content->open_attempt);
    if (content->whole_bytes > 0) kind_ = content->kind;
    whole_bytes_ = content->whole_bytes;
    cut_bytes_ = bytes->size() - whole_bytes_;
    return cut_bytes_ == 0 && whole_bytes_ > 0 ? Status() : OpenFile();
  }

  JournalKind kind() const override { return kind_; }
  const std::vector<DatabaseEntry>& replayed() const override { return replayed_; }
  uint64_t cut_bytes() const override { return cut_bytes_; }

  const std::vector<JournalBlame>& blames() const override { return blames_; }
  void ForgetBlames() override { blames_.clear(); }

  Status Begin() override {
    if (left_open_.empty()) return fd_.is_open() ? Status() : OpenFile();
    std::string records;
    for (JournalAttempt& attempt : std::exchange(left_open_, {})) {
      blames_.push_back({std::move(attempt), 0, ""});
      records += EncodeJournalRecord(blames_.back());
    }
    return Write(records, false);
  }

  Status NoteAttempt(const JournalAttempt& attempt) override {
    return Write(EncodeJournalRecord(attempt), false);
  }

  Status Append(const DatabaseEntry& entry) override {
    DropBlamesOf(entry.cell, blames_);
    return Write(EncodeJournalRecord(entry), true);
  }

  Status Clear() override {
    fd_.Reset();
    whole_bytes_ = 0;
    // The blames that are left belong to no tune that goes on.
    kind_ = blames_.empty() ? new_kind_ : JournalKind::kTune;
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
      return JournalFailure("the journal cannot be removed", path_);
    }
    for (const JournalBlame& blame : blames_) {
      if (Status kept = Write(EncodeJournalRecord(blame), false); !kept) return kept;
    }
    return SyncFolder(FolderOf(path_));
  }

 private:
  Status Write(const std::string& record, bool is_durable) {
    if (!fd_.is_open()) {
      if (Status opened = OpenFile(); !opened) return opened;
    }
    // Another rank that was about to end may have added to it.
    const off_t end = lseek(fd_.get(), 0, SEEK_END);
    if (end > 0) whole_bytes_ = static_cast<uint64_t>(end);
    if (WriteAll(fd_.get(), record) && (!is_durable || fdatasync(fd_.get()) == 0)) {
      whole_bytes_ += record.size();
      return {};
    }
    Status failure = JournalFailure("a measurement cannot be written to the journal", path_);
    // The next one opens anew and cuts off what this one left.
    fd_.Reset();
    return failure;
  }

  // One end counts once for a choice, at however many sizes and on however many ranks it was under
  // way.
  void Suspect(const JournalAttempt& attempt) {
    const bool is_known =
        std::any_of(left_open_.begin(), left_open_.end(),
                    [&](const JournalAttempt& other) { return other.IsOfSameChoice(attempt); });
    if (!is_known) left_open_.push_back(attempt);
  }

  // Opens for appending behind the whole records; what lies behind them goes. Writes the header of
  // a new file.
  Status OpenFile() {
    UniqueFd fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!fd.is_open()) return JournalFailure("the journal cannot be opened", path_);
    if (ftruncate(fd.get(), static_cast<off_t>(whole_bytes_)) != 0) {
      return JournalFailure("the journal cannot be cut to its whole records", path_);
    }
    const std::string header = JournalHeader(kind_);
    const bool is_new = whole_bytes_ == 0;
    if (is_new && !WriteAll(fd.get(), header))
      return JournalFailure("the journal cannot be begun", path_);
    if (fdatasync(fd.get()) != 0)
      return JournalFailure("the journal cannot be made durable", path_);
    if (is_new) {
      if (Status synced = SyncFolder(FolderOf(path_)); !synced) return synced;
      whole_bytes_ = header.size();
    }
    fd_ = std::move(fd);
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
  uint64_t whole_bytes_ = 0;               // of the file, up to the end of its last whole record
  uint64_t cut_bytes_ = 0;
};

// Safe in a signal handler.
bool AppendRecord(const char* journal_path, std::string_view record) {
  const int file = open(journal_path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  // A record that is cut is left out by the next tune.
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
    if (!blame.is_certain()) suspects.push_back(blame.attempt);
  }
  return suspects;
}

Result<std::unique_ptr<TuningJournal>> TuningJournal::Open(const std::string& database_path,
                                                           JournalKind kind) {
  Result<DatabaseLock> lock = DatabaseLock::Acquire(database_path);
  if (!lock) return Propagate(lock);
  auto journal = std::make_unique<FileJournal>(std::move(*lock), database_path + ".journal", kind);
  if (Status replayed = journal->Replay(); !replayed) return Propagate(replayed);
  return journal;
}

}  // namespace cotune
