// A whole tune of a job: known cells from the database, the scheduler, the journal, the saved
// database.
#ifndef COTUNE_INTEGRATION_TUNE_RUN_H_
#define COTUNE_INTEGRATION_TUNE_RUN_H_

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "core/database/tuned_database.h"
#include "core/scheduler/scheduler.h"
#include "core/scheduler/tune_times.h"
#include "integration/job.h"

namespace cotune {

// One node of the tune: a program with the sizes that it is tuned at, in bytes of its first
// collective.
struct TuneNode {
  Program program;
  std::vector<uint64_t> sizes_bytes;  // empty: those of the settings
};

struct TuneRequest {
  std::vector<TuneNode> nodes;
  std::string database_path;  // "": nothing is read or written
  // A database that cannot be read or written is a warning, and the tune goes on without it.
  bool database_is_optional = false;
  // Another tune that writes to the database is waited for when there is something to save, and not
  // refused before.
  bool waits_to_save = false;
  // The first cell that cannot be written to the journal ends the tune with kEnvironment, on all
  // ranks, and what is written by then is kept. Without it the tune goes on with a warning, for a
  // process that uses the table itself.
  bool ends_unless_kept = false;
  std::string command = "tune";  // what the ranks were all asked to do, as its user calls it
  bool force = false;            // measure again what the database has
  // Whether the listeners of the job record it. The ranks compare it, because they gather what they
  // have recorded when the tune is over.
  bool is_traced = false;
  std::string cotune_version;
  // Winners of the table that the group runs by, equal on all ranks: what is tuned is merged into
  // them, and the ranks agree once, on the result.
  MeasuredWinners base;
  StageObserver* listener = nullptr;  // beside that of the job; may be nullptr
  // Set by a signal handler: the tune stops after the cell it is at, on all ranks.
  const std::atomic<bool>* interrupted = nullptr;
};

struct TuneReport {
  TuneOutcome outcome;
  // Measured and known cells with their winners, in the order of the nodes; those without any time
  // are left out.
  std::vector<DatabaseEntry> entries;
  std::vector<DecidedCell> cells_without_winner;
  int64_t elapsed_ns = 0;
  bool saved = false;
  // Why the database could not be written, on all ranks. What was measured is in the report all the
  // same, and in the journal.
  std::optional<Error> save_failure{};
  TuneTimes times{};  // of this rank
};

// Collective: the same request on every rank. Only rank 0 reads and writes the database; its errors
// end the tune on all ranks with the same code, except that of the last step, see save_failure. A
// place that cannot be written is an error, before anything is measured, only when some cell is not
// known. Plans that the job's dispatcher keeps are dropped. kInterrupted: what was measured is in
// the journal and the next tune goes on from there.
Result<TuneReport> RunTune(Job& job, const TuneRequest& request);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TUNE_RUN_H_
