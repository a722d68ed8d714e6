// The output of a command: results go to standard output, everything else to standard error.
#ifndef COTUNE_CLI_OUTPUT_CONSOLE_H_
#define COTUNE_CLI_OUTPUT_CONSOLE_H_

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cli/input/command_line.h"
#include "core/base/event_sink.h"
#include "core/base/status.h"

namespace cotune::cli {

class Console final : public EventSink {
 public:
  // Both streams outlive the console. `use_color` holds for `log`.
  Console(std::FILE* results, std::FILE* log, std::string command, OutputFlags flags,
          bool use_color)
      : results_(results),
        log_(log),
        command_(std::move(command)),
        flags_(flags),
        use_color_(use_color) {}

  // Lines of a job, from any thread: warnings, and with -v all others. The loss of a rank is left
  // to the error that ends the command.
  void OnEvent(const Event& event) override;

  const OutputFlags& flags() const { return flags_; }
  const std::string& command() const { return command_; }

  // The result, whole. Gives the exit code: 0, or that of the environment when it cannot be
  // written, which is said.
  int PrintResult(std::string_view text);
  // As is, to the log.
  void PrintLog(std::string_view text);
  // "cotune: warning: ...".
  void Warn(std::string_view text);
  // Prints the line about the loss of a rank that OnEvent has kept back, if there is one. For a
  // command that ends without the error of that loss: a rank can die after the result was printed.
  void WarnOfLostRank();
  // "cotune: note: ...", unless it is empty or the user wants quiet.
  void Note(std::string_view text);
  // "cotune: error 2 (usage): what (where): cause; next step"; to the error pipe where there is
  // one.
  void LogError(const Error& error);
  // The text of an error from the error pipes of these ranks, of `world_size`; all ranks are not
  // listed.
  void LogRankError(const std::vector<int>& ranks, int world_size, const std::string& text);
  // From now on errors go to this pipe: the process that started this rank says each once.
  void set_error_pipe(int fd) { error_pipe_ = fd; }
  int error_pipe() const { return error_pipe_; }  // -1: there is none
  // LogError, and with --json the error as a
  // result too. Gives the exit code.
  int PrintError(const Error& error);

 private:
  // `text` as LogError makes it.
  void PrintErrorLine(std::string_view prefix, std::string_view text);

  std::FILE* results_;
  std::FILE* log_;
  std::string command_;
  OutputFlags flags_;
  bool use_color_;
  int error_pipe_ = -1;
  std::mutex held_mutex_;
  std::string held_line_;  // about a lost rank
};

// Whether escape sequences may go to this stream: a terminal, TERM is not "dumb", NO_COLOR is not
// set.
bool IsCapableTerminal(std::FILE* stream);
// Width of the terminal; 80 when it is not known.
size_t TerminalColumns(std::FILE* stream);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_CONSOLE_H_
