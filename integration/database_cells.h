// The database and the journal of a tune, on rank 0: what is known, what is kept, what is left out.
#ifndef COTUNE_INTEGRATION_DATABASE_CELLS_H_
#define COTUNE_INTEGRATION_DATABASE_CELLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/database/known_cells.h"
#include "core/database/tuned_database.h"
#include "core/database/tuning_journal.h"

namespace cotune {

// One thread, but several may call Find at once while no other function runs. On other ranks than 0
// it is not opened and knows nothing.
class DatabaseCells final : public KnownCells {
 public:
  struct Place {
    std::string path;  // of the tuned database; "": none
    bool force = false;
    std::string cotune_version;
    std::map<uint64_t, std::string> program_texts{};  // of the programs to tune, by digest
    // While another tune writes there, this one begins without its journal, and waits until it has
    // something to save: groups of one job tune side by side.
    bool waits_to_save = false;
    // The tune ends at the first cell that cannot be written, with why_not_kept.
    bool ends_unless_kept = false;
  };
  // The fingerprint, of this machine, outlives the object.
  DatabaseCells(Place place, const Fingerprint& fingerprint)
      : place_(std::move(place)), fingerprint_(fingerprint) {}

  // Loads what is there and takes the lock that keeps a second tune out. A place that cannot be
  // written is no failure yet: CheckWritable says whether it is one.
  Status Open();

  // Why the tune cannot begin: `problems` are not all known, and what
  // is measured could not be kept.
  Status CheckWritable(const std::vector<Problem>& problems);

  // A cell is not known when a backend that is here now did not take part in it, or did as another
  // build of its plugin: it might win.
  std::optional<CellResult> Find(const Problem& problem) override;
  bool FindsOnAnyThread() const override { return true; }

  // One text for each reason for which cells of the database are measured again: a backend did not
  // take part or was another build of its plugin, or the ranks reached each other in other ways.
  std::vector<std::string> WhatIsMeasuredAgain(const std::vector<Problem>& problems) const;

  std::vector<LeftOutChoice> Begin() override;

  void NoteAttempt(const Problem& problem, const ChoiceId* choice) override;

  Status Record(const CellResult& cell, const Winner& winner) override;

  // This text tells which measured cells the journal keeps when they cannot be saved; it is ""
  // where there are none.
  std::string WhatIsKept() const;

  // Why the tune has to end: a cell that was measured could not be written, and what follows could
  // not be either. Set by Record if Place asks for it; its next step has WhatIsKept.
  const std::optional<Error>& why_not_kept() const { return why_not_kept_; }

  // This text warns of a journal that an earlier tune has left damaged; it is "" where none is.
  std::string WhatJournalLost() const;

  // The file that keeps what was measured until it is saved; "": nothing is kept.
  std::string JournalWithCells() const;

  // Returns true if the journal is open and this tune, with those that it goes on from, has
  // measured nothing.
  bool IsWithoutCells() const { return journal_ != nullptr && fresh_.empty(); }

  // Writes the database with everything new in it. Nothing new: nothing is written. May wait for
  // another tune, see Place, for kSaveWaitNs.
  static constexpr int64_t kSaveWaitNs = 10'000'000'000;
  Result<bool> Save();

 private:
  Result<bool> Save(bool is_forced);

  // Waits for the tune that writes to the database, and reads what it has left there.
  Status TakeAfterOther();

  // Takes the cells of interrupted tunes. If several builds of a plugin have measured one, the last
  // build counts.
  void TakeReplayed();

  // The user who forces a measurement wants it whatever the file says: its old one may be of a
  // machine whose clock ran ahead.
  void MergeFresh(bool is_forced);

  bool FileExists() const;

  // Returns true if the backends of all steps are here.
  bool CanRunHere(const ChoiceId& choice) const;

  // The choice can run here, and its plugins are the builds that were blamed.
  bool CanEndThisTune(const JournalBlame& blame) const;

  std::string ReasonOf(const JournalBlame& blame) const;

  const Place place_;
  const Fingerprint& fingerprint_;
  std::unique_ptr<TuningJournal> journal_;  // null: nothing is written yet
  bool is_with_other_ = false;              // another tune writes, and this one saves after it
  std::optional<Error> write_failure_;
  bool has_failed_to_append_ = false;
  std::optional<Error> why_not_kept_;
  bool has_begun_ = false;
  size_t kept_cells_ = 0;    // of fresh_, in the journal
  uint64_t lost_bytes_ = 0;  // of the journal
  TunedDatabase database_;
  TunedDatabase fresh_;     // measured by this tune, or by the one that was interrupted
  TunedDatabase recorded_;  // measured by this tune
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_DATABASE_CELLS_H_
