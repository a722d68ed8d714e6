// Where a command writes: results to standard output, everything else to standard error.
#ifndef COTUNE_CLI_CONSOLE_H_
#define COTUNE_CLI_CONSOLE_H_

#include <cstdio>
#include <string>
#include <string_view>

#include "cli/command_line.h"
#include "core/status.h"

namespace cotune::cli {

class Console {
 public:
  // Both streams outlive the console. `use_color` holds for `log`.
  Console(std::FILE* results, std::FILE* log, std::string command, OutputFlags flags,
          bool use_color)
      : results_(results),
        log_(log),
        command_(std::move(command)),
        flags_(flags),
        use_color_(use_color) {}

  const OutputFlags& flags() const { return flags_; }
  const std::string& command() const { return command_; }

  // The result, whole. Gives the exit code: 0, or that of the environment when it cannot be
  // written, which is said.
  int PrintResult(std::string_view text);
  // As is, to the log.
  void PrintLog(std::string_view text);
  // "cotune: warning: ...".
  void Warn(std::string_view text);
  // "cotune: error 2 (usage): what (where): cause; next step".
  void LogError(const Error& error);
  // LogError, and with --json the error as a
  // result too. Gives the exit code.
  int PrintError(const Error& error);

 private:
  std::FILE* results_;
  std::FILE* log_;
  std::string command_;
  OutputFlags flags_;
  bool use_color_;
};

// Whether escape sequences may go to this stream: a terminal, TERM is not "dumb", NO_COLOR is not
// set.
bool IsCapableTerminal(std::FILE* stream);
// Width of the terminal; 80 when it is not known.
size_t TerminalColumns(std::FILE* stream);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_CONSOLE_H_
