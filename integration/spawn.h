// Starts the ranks of a job as processes on this machine and sees them to their end.
#ifndef COTUNE_INTEGRATION_SPAWN_H_
#define COTUNE_INTEGRATION_SPAWN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace cotune {

// The variable that tells a rank where its errors go: the number of an open pipe. Each error ends
// with a zero byte.
inline constexpr char kErrorPipeVariable[] = "COTUNE_ERROR_PIPE";

// A rank writes these to its error pipe, each with a zero byte: when all ranks have joined the job,
// and before it ends with an exit code of its own, whatever it is.
inline constexpr char kJoinedWord[] = "joined";
inline constexpr char kDoneWord[] = "done";

struct SpawnRequest {
  std::vector<std::string> command;  // program and arguments; the program is searched on PATH
  int ranks = 1;
  // Called with every error of the ranks, once for all that say the same, with these ranks,
  // ascending: that a program cannot be started, and what it writes to its error pipe. Empty: the
  // former goes to standard error, and there is no pipe.
  std::function<void(const std::vector<int>& ranks, const std::string& text)> on_error;
  bool knows_error_pipe = false;  // the program does; else it does not get it
  // The program writes kJoinedWord to its error pipe when it has joined, and kDoneWord or an error
  // before it ends. A rank that gives any exit code without them counts as lost: something in it,
  // such as a plugin, has called exit(). When a rank is lost before any has joined, those that do
  // not notice it within half a second are ended by SIGKILL: they hold no results, and would wait
  // for it until their deadline.
  bool reports_milestones = false;
  // Called at once when the first rank has ended badly by itself, unless its program could not be
  // started: "rank 2 (pid 41, ./train) was ended by SIGSEGV (Segmentation fault) after 3.2 s; rank
  // 1 has ended with exit code 0". `by_signal`: it was, and did not give an exit code.
  std::function<void(int rank, bool by_signal, const std::string& text)> on_loss;
  // The other ranks are then sent SIGTERM. This is off for ranks that know of each other: they
  // notice the loss by themselves, and say more about it.
  bool ends_others = false;
  // A rank that stays stopped (SIGSTOP) counts as lost after the grace. Ranks of a tune wait for it
  // in vain. This is off for a program of the user's, which may be stopped for as long as somebody
  // wants to look at it.
  bool loses_stopped_ranks = true;
  // When a rank that counts as lost if it stays stopped has been stopped for this long, a line on
  // standard error names it and the time for which it is still waited for.
  int64_t stopped_notice_ns = 5'000'000'000;
  // How long ranks may go on after one has ended badly or was stopped (see above), and after a
  // SIGINT, SIGTERM, SIGHUP or SIGQUIT was passed on, before they are ended by SIGKILL.
  int64_t grace_ns = 60'000'000'000;
};

struct SpawnResult {
  int exit_code = 0;  // of the job
  // One a rank that did not end by itself, and that on_loss has not told: "rank 2 (pid 41, ./train)
  // was ended by SIGKILL (Killed)"; and these ranks, ascending.
  std::vector<std::string> messages;
  std::vector<int> lost_ranks;
  // The others were ended, because that rank was lost before the ranks had joined.
  bool was_lost_before_join = false;
  bool rank_0_told_error = false;  // by its error pipe
};

// Runs the ranks with COTUNE_RANK, COTUNE_WORLD_SIZE, COTUNE_JOB_ID and the switches that keep
// NVLink multicast off. Standard output of rank 0 is this process's; that of other ranks goes to
// standard error, where each line of a rank but 0 starts with "[rank 2] ". Rank 0 has this
// process's standard input, the others have none (/dev/null).
//
// Each rank leads a process group of its own, so that signals reach what it has started, too.
// SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGTSTP are passed on. When rank 0 reads the terminal, its
// group is brought to the foreground, and the terminal's keys are its own until it ends. A rank
// ends with this process, but what it has started only when this process could end it.
//
// The exit code is 0 when all ranks gave 0; 5 when a rank was lost (signal, stopped, did not end in
// time); 130 when the user's signal ended ranks that do not catch it; else that of the first rank
// that failed by itself. What is ended because another has failed does not count.
Result<SpawnResult> SpawnRanks(const SpawnRequest& request);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SPAWN_H_
