#include "integration/settings/settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// As a message shows what may be no text: other bytes than printable ASCII as \xNN, and only the
// beginning.
std::string Shown(std::string_view text) {
  constexpr size_t kShownMax = 60;
  std::string shown;
  for (const char c : text.substr(0, kShownMax)) {
    const bool is_printable = c >= ' ' && c <= '~';
    shown += is_printable ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return text.size() > kShownMax ? shown + "..." : shown;
}

// Letters, digits, '_', '-' and '.'.
bool IsKey(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
}

// Takes a value that begins with a quote, and sees that nothing but a comment follows. `wrong` is
// empty when it is fine.
std::string ReadQuoted(std::string_view text, std::string& wrong) {
  const char quote = text.front();
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == quote) {
      const std::string_view rest = Trim(text.substr(i + 1));
      if (!rest.empty() && rest.front() != '#') wrong = "something follows the closing quote";
      return value;
    }
    if (text[i] == '\\' && quote == '"') {
      ++i;
      if (i == text.size() || (text[i] != '\\' && text[i] != '"')) {
        wrong = "only \\\\ and \\\" are known behind a backslash";
        return value;
      }
    }
    value += text[i];
  }
  wrong = "the closing quote is missing";
  return value;
}

// One line that is neither empty nor a comment. `wrong` is empty when it is fine.
void ReadLine(std::string_view line, std::string& section, SettingsFileEntry& entry,
              std::string& wrong) {
  if (line.front() == '[') {
    const std::string_view body = Trim(line.substr(0, line.find('#')));
    const std::string_view name =
        body.back() == ']' ? Trim(body.substr(1, body.size() - 2)) : std::string_view();
    if (!IsKey(name)) wrong = "a section is written [name]";
    section = name;
    return;
  }
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    wrong = "there is no '='";
    return;
  }
  const std::string_view key = Trim(line.substr(0, equals));
  if (!IsKey(key)) {
    wrong = fmt::format("\"{}\" is not a key", Shown(key));
    return;
  }
  const std::string_view value = Trim(line.substr(equals + 1));
  entry.section = section;
  entry.key = key;
  if (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
    entry.value = ReadQuoted(value, wrong);
    return;
  }
  entry.value = Trim(value.substr(0, value.find('#')));
  if (entry.value.empty()) wrong = "the value is missing";
}

tl::unexpected<Error> CannotRead(const std::string& path, std::string cause) {
  return Fail(ErrorCode::kEnvironment, "cannot read the settings file", path, std::move(cause),
              "give another file with --config or COTUNE_CONFIG");
}

}  // namespace

Result<std::vector<SettingsFileEntry>> ParseSettingsFile(std::string_view content,
                                                         std::string_view path) {
  std::vector<SettingsFileEntry> entries;
  std::string section;
  int line_number = 0;
  while (!content.empty()) {
    ++line_number;
    const size_t newline = content.find('\n');
    const std::string_view line = Trim(content.substr(0, newline));
    content.remove_prefix(newline == std::string_view::npos ? content.size() : newline + 1);
    if (line.empty() || line.front() == '#') continue;
    SettingsFileEntry entry;
    entry.line = line_number;
    std::string wrong;
    ReadLine(line, section, entry, wrong);
    if (!wrong.empty()) {
      return Fail(ErrorCode::kUsage, "cannot read a line of the settings file",
                  fmt::format("{}:{}", path, line_number), wrong,
                  "write key = value, for example budget = \"30s\"");
    }
    if (!entry.key.empty()) entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<SettingsFileEntry>> ReadSettingsFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotRead(path, std::strerror(errno));
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    return CannotRead(path, "it is not a regular file");
  }
  std::string content;
  std::array<char, 16 * 1024> block{};
  ssize_t got = 0;
  while (content.size() <= kFileBytesMax && (got = read(file, block.data(), block.size())) > 0) {
    content.append(block.data(), static_cast<size_t>(got));
  }
  const int read_error = got < 0 ? errno : 0;
  close(file);
  if (read_error != 0) return CannotRead(path, std::strerror(read_error));
  if (content.size() > kFileBytesMax) return CannotRead(path, "it is larger than 1 MiB");
  return ParseSettingsFile(content, path);
}

}  // namespace cotune
