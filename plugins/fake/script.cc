#include "plugins/fake/script.h"

#include <algorithm>
#include <charconv>

namespace cotune::fake {
namespace {

std::string_view TakeWord(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

template <typename T>
bool Read(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool SetValue(std::string_view key, std::string_view value, ScriptedChoice& choice) {
  if (key == "cost_us") return Read(value, choice.cost_us);
  if (key == "cost_per_kib_us") return Read(value, choice.cost_per_kib_us);
  if (key == "model_us") return Read(value, choice.model_us);
  if (key == "prepare_fails_on") return Read(value, choice.prepare_fails_on);
  if (key == "prepare_delay_ms") return Read(value, choice.prepare_delay_ms);
  if (key == "launch_fails_on") return Read(value, choice.launch_fails_on);
  if (key == "launch_fails_at") return Read(value, choice.launch_fails_at);
  if (key == "wrong_on") return Read(value, choice.wrong_on);
  if (key == "overruns_on") return Read(value, choice.overruns_on);
  if (key == "hangs_on") return Read(value, choice.hangs_on);
  if (key == "bytes_min") return Read(value, choice.bytes_min);
  if (key == "bytes_max") return Read(value, choice.bytes_max);
  if (key == "refuse" && !value.empty()) {
    choice.refuse = value;
    std::replace(choice.refuse.begin(), choice.refuse.end(), '_', ' ');
    return true;
  }
  return false;
}

// Empty when the line was read.
std::string ParseLine(std::string_view line, Script& script) {
  std::string_view rest = line;
  const std::string_view first = TakeWord(rest);
  if (first.empty() || first[0] == '#') return "";
  if (first != "choice") return "expected 'choice', found '" + std::string(first) + "'";
  ScriptedChoice choice;
  choice.name = TakeWord(rest);
  if (choice.name.empty()) return "a choice needs a name";
  for (std::string_view word = TakeWord(rest); !word.empty(); word = TakeWord(rest)) {
    const size_t equals = word.find('=');
    const bool known = equals == std::string_view::npos
                           ? word == "default" || word == "collective_prepare"
                           : SetValue(word.substr(0, equals), word.substr(equals + 1), choice);
    if (!known) return "cannot read '" + std::string(word) + "'";
    if (word == "default") choice.is_default = true;
    if (word == "collective_prepare") choice.collective_prepare = true;
  }
  script.choices.push_back(std::move(choice));
  return "";
}

}  // namespace

Script ParseScript(std::string_view text) {
  Script script;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find_first_of("\n;"), text.size());
    const std::string mistake = ParseLine(text.substr(0, end), script);
    if (!mistake.empty()) {
      script.mistake = "line " + std::to_string(line) + ": " + mistake;
      return script;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (script.choices.empty()) script.mistake = "line 1: there is no choice";
  return script;
}

}  // namespace cotune::fake
