// How a process of this program ends that a call into a plugin crashes or never gives back. State
// is the process's, as signals are.
#ifndef COTUNE_CLI_SESSION_LAST_RESORT_H_
#define COTUNE_CLI_SESSION_LAST_RESORT_H_

#include <string>

#include "cli/output/console.h"
#include "core/base/status.h"

namespace cotune::cli {

// From now on a process that crashes inside a plugin says in which call, and ends with the code of
// an error. Once in a process, before any plugin is loaded.
void CatchCrashes(const Console& console);
// The process is this rank of a tune: a crash also leaves the choice in the journal, for the next
// tune, and the signal ends the process as ever, for whoever has started the ranks to see.
void NoteRank(int rank, int world_size);
// The journal of the tune that runs; "": there is none.
void NoteJournal(const std::string& path);

// The user ends this process at once: no choice that is under way is to blame. Safe in a signal
// handler.
void NoteUserStop();

// Says the error, as a result too where `is_first` and JSON is wanted, and ends the process with
// the error's code. Neither locks nor destructors stand in the way: the thread that is stuck may
// hold any of them.
[[noreturn]] void EndStuck(const Error& error, const Console& console, bool is_first);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_LAST_RESORT_H_
