// SIGINT and SIGTERM in a process that tunes. State is the process's, as signals are.
#ifndef COTUNE_CLI_SESSION_INTERRUPTS_H_
#define COTUNE_CLI_SESSION_INTERRUPTS_H_

#include <atomic>
#include <string>

namespace cotune::cli {

// From now on a signal ends the process at once while nothing has begun, the tune after the cell it
// is at while one runs, and nothing after that; insisting ends the process. early_error and
// early_document go to standard error and standard output in the first case; speaks: this process
// says for all ranks what becomes of the tune. Once in a process.
// error_pipe: gets kDoneWord before a signal ends this process; -1: there is none.
void CatchInterrupts(bool speaks, int error_pipe, std::string early_error,
                     std::string early_document);
// Around what has to be ended in order.
void BeginInterruptible();
void EndInterruptible();
// Set by a signal.
const std::atomic<bool>& Interrupted();

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_INTERRUPTS_H_
