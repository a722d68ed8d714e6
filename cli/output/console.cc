#include "cli/output/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/output/json_output.h"
#include "core/base/counted.h"
#include "core/base/failure_line.h"
#include "fmt/format.h"

namespace cotune::cli {

namespace {

// The exit code that a shell gives for a program that SIGPIPE has ended.
constexpr int kReaderLeftExitCode = 141;

}  // namespace

int Console::PrintResult(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), results_) == text.size() &&
                          std::fflush(results_) == 0;
  if (is_written) return 0;
  // The reader has what it wanted, as `head` does.
  if (errno == EPIPE) return kReaderLeftExitCode;
  const Error error{ErrorCode::kEnvironment,
                    "cannot write the result",
                    "standard output",
                    std::strerror(errno),
                    "free space or keep the reader open",
                    {}};
  LogError(error);
  return ExitCode(error.code);
}

void Console::OnEvent(const Event& event) {
  if (event.type != EventType::kLine) return;
  if (FailureOfLine(event) == ErrorCode::kRankLost) {
    // The error that ends the command has the same text, and names what is kept.
    const std::lock_guard lock(held_mutex_);
    held_line_ = event.name;
  } else if (event.severity >= Severity::kWarning) {
    Warn(event.name);
  } else if (flags_.verbose) {
    PrintLog(fmt::format("cotune: {}\n", event.name));
  }
}

void Console::PrintLog(std::string_view text) {
  // Nobody is left to tell when this fails.
  std::fwrite(text.data(), 1, text.size(), log_);
  std::fflush(log_);
}

void Console::WarnOfLostRank() {
  const std::lock_guard lock(held_mutex_);
  if (!held_line_.empty()) Warn(held_line_);
  held_line_.clear();
}

void Console::Warn(std::string_view text) {
  PrintLog(fmt::format("cotune: {}warning{}: {}\n", use_color_ ? "\x1b[33m" : "",
                       use_color_ ? "\x1b[0m" : "", text));
}

void Console::Note(std::string_view text) {
  if (!text.empty() && !flags_.quiet) PrintLog(fmt::format("cotune: note: {}\n", text));
}

void Console::LogError(const Error& error) {
  const std::string text = fmt::format("error {} ({}): {}", ExitCode(error.code),
                                       ErrorCodeName(error.code), error.ToText());
  const auto size = static_cast<ssize_t>(text.size() + 1);  // with the zero byte
  if (error_pipe_ >= 0 && write(error_pipe_, text.c_str(), size) == size) return;
  PrintErrorLine("", text);
}

void Console::PrintErrorLine(std::string_view prefix, std::string_view text) {
  const size_t head = text.find(':');
  PrintLog(fmt::format("{}cotune: {}{}{}{}\n", prefix, use_color_ ? "\x1b[31m" : "",
                       text.substr(0, head), use_color_ ? "\x1b[0m" : "", text.substr(head)));
}

void Console::LogRankError(const std::vector<int>& ranks, int world_size, const std::string& text) {
  const bool is_rank_0 = ranks.size() == 1 && ranks.front() == 0;
  const bool names_no_rank = is_rank_0 || static_cast<int>(ranks.size()) == world_size;
  PrintErrorLine(names_no_rank
                     ? ""
                     : fmt::format("[rank{} {}] ", ranks.size() > 1 ? "s" : "", NumbersText(ranks)),
                 text);
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
