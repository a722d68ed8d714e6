#include "core/base/check.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace cotune {

void CheckFailed(std::string_view condition, std::string_view meaning, std::string_view file,
                 int line) {
  std::string text = "cotune: a check of cotune's own code failed: ";
  text += meaning;
  text += " (";
  text += condition;
  text += ", ";
  text += file;
  text += ':';
  text += std::to_string(line);
  text += "); please report it with this line\n";
  // One write, so that lines of several ranks stay whole.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace cotune
