// The append-only journal of a running tune, beside the database: PATH.journal.
#ifndef COTUNE_CORE_DATABASE_TUNING_JOURNAL_H_
#define COTUNE_CORE_DATABASE_TUNING_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"
#include "core/database/tuning_journal_format.h"

namespace cotune {

// Keeps the cells that a tune has measured and not saved yet. One writer (rank 0), guarded by the
// database's lock, which dies with its process. Not thread-safe.
class TuningJournal {
 public:
  // Takes the lock on the database (kDatabase naming the other process when a second tune runs),
  // and replays the records that are whole. kDatabase, with what to do, when the file is not a
  // journal of this version or a whole record holds what cannot be. A new file, of this kind, is
  // made by the first Append.
  static Result<std::unique_ptr<TuningJournal>> Open(const std::string& database_path,
                                                     JournalKind kind);
  virtual ~TuningJournal() = default;

  // The kind of the file: that of the interrupted tune, when there are cells to replay.
  virtual JournalKind kind() const = 0;
  // Choices that have ended tunes, and have not been measured since.
  virtual const std::vector<JournalBlame>& blames() const = 0;
  // Before anything is made ready: makes the file, and turns what the last tune has left open, its
  // attempt and the plans that its ranks were making, into blames that are not certain, one a
  // choice. Notes that are added from here on, by any rank, are of this tune's `builds`.
  virtual Status Begin(const PluginBuilds& builds) = 0;
  // The choice that is launched next, or, without one, that none is. Lost with the machine's power,
  // not with the process.
  virtual Status NoteAttempt(const JournalAttempt& attempt) = 0;
  // All that has ended tunes is tried again; for the next Clear.
  virtual void ForgetBlames() = 0;
  // The cells that an interrupted tune had measured, in order.
  virtual const std::vector<DatabaseEntry>& replayed() const = 0;
  // Bytes that Open has left out, since no whole record has them: writes that were cut off, or
  // damage. They stay in the file.
  virtual uint64_t lost_bytes() const = 0;
  // Durable when it returns. After a failure (kEnvironment) the records before and those that are
  // added later count.
  virtual Status Append(const DatabaseEntry& entry) = 0;
  // After the database was saved with everything in it: removes the journal, but for the blames.
  // The lock stays until the object goes; a later Append begins a new file.
  virtual Status Clear() = 0;
};

// Adds a blame to the journal at the path, if there is one, from any process: for one that is about
// to end. Whether it is written. Safe in a signal handler.
bool AppendBlame(const char* journal_path, const BlameText& blame);

// Notes, from any rank, that it begins to make a plan or is done with it, in the journal at the
// path, if there is one. A note that cannot be written is lost.
void AppendPrepare(const std::string& journal_path, const JournalPrepare& prepare);
// The choices that earlier tunes have left blames of that are not certain, without those of other
// builds than the tune that has begun the journal last; none if the journal cannot be read.
std::vector<JournalAttempt> SuspectsOf(const std::string& journal_path);
// The user ends the tune at once: nothing that is under way is to blame. Safe in a signal handler;
// `record` is EncodeJournalRecord(JournalAttempt()).
void AppendStop(const char* journal_path, std::string_view record);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNING_JOURNAL_H_
