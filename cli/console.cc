#include "cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/json_output.h"
#include "fmt/format.h"

namespace cotune::cli {

int Console::PrintResult(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), results_) == text.size() &&
                          std::fflush(results_) == 0;
  if (is_written) return 0;
  const Error error{ErrorCode::kEnvironment,
                    "cannot write the result",
                    "standard output",
                    std::strerror(errno),
                    "free space or keep the reader open",
                    {}};
  LogError(error);
  return ExitCode(error.code);
}

void Console::PrintLog(std::string_view text) {
  // Nobody is left to tell when this fails.
  std::fwrite(text.data(), 1, text.size(), log_);
  std::fflush(log_);
}

void Console::Warn(std::string_view text) {
  PrintLog(fmt::format("cotune: {}warning{}: {}\n", use_color_ ? "\x1b[33m" : "",
                       use_color_ ? "\x1b[0m" : "", text));
}

void Console::LogError(const Error& error) {
  PrintLog(fmt::format("cotune: {}error {} ({}){}: {}\n", use_color_ ? "\x1b[31m" : "",
                       ExitCode(error.code), ErrorCodeName(error.code), use_color_ ? "\x1b[0m" : "",
                       error.ToText()));
}

int Console::PrintError(const Error& error) {
  LogError(error);
  if (flags_.json) PrintResult(ErrorJson(command_, error));
  return ExitCode(error.code);
}

bool IsCapableTerminal(std::FILE* stream) {
  const char* const term = std::getenv("TERM");
  const char* const no_color = std::getenv("NO_COLOR");
  return isatty(fileno(stream)) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0 &&
         (no_color == nullptr || *no_color == '\0');
}

size_t TerminalColumns(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

}  // namespace cotune::cli
