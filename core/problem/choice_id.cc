#include "core/problem/choice_id.h"

#include <algorithm>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr size_t kBackendCharactersMax = 31;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsWordCharacter);
}

bool IsBackendName(std::string_view text) {
  if (text.empty() || text.size() > kBackendCharactersMax) return false;
  if (text[0] < 'a' || text[0] > 'z') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsWordCharacter(c) && c != '.' && c != '-'; });
}

// The parameter part behind '?'; empty when it is well formed, else what is wrong with it.
std::string ParameterMistake(std::string_view text) {
  constexpr size_t kUsualKeys = 8;
  std::vector<std::string_view> keys;
  keys.reserve(kUsualKeys);
  while (true) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || !IsWord(pair.substr(0, equals)) ||
        !IsWord(pair.substr(equals + 1))) {
      return fmt::format("'{}' is not key=value", pair);
    }
    const std::string_view key = pair.substr(0, equals);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
      return fmt::format("key '{}' comes twice", key);
    }
    keys.push_back(key);
    if (end == text.size()) return "";
    text.remove_prefix(end + 1);
  }
}

tl::unexpected<Error> Malformed(std::string_view text, std::string cause) {
  return Fail(ErrorCode::kUsage, fmt::format("'{}' is not a choice id", text), "", std::move(cause),
              "write backend/algorithm or backend/algorithm?key=value&key=value");
}

}  // namespace

Result<ChoiceId> ChoiceId::Parse(std::string_view text) {
  size_t first_slash = std::string_view::npos;
  for (std::string_view rest = text;;) {
    const size_t end = std::min(rest.find('+'), rest.size());
    Result<ChoiceId> step = ParseStep(rest.substr(0, end));
    if (!step || end == text.size()) return step;
    if (first_slash == std::string_view::npos) first_slash = step->slash_;
    if (end == rest.size()) return ChoiceId(std::string(text), first_slash);
    rest.remove_prefix(end + 1);
  }
}

ChoiceId ChoiceId::Join(std::span<const ChoiceId> steps) {
  const ChoiceId& first = steps.front();
  const auto is_first = [&](const ChoiceId& each) { return each == first; };
  if (std::all_of(steps.begin(), steps.end(), is_first)) return first;
  std::string text = first.text();
  for (const ChoiceId& step : steps.subspan(1)) text += "+" + step.text();
  return {std::move(text), first.slash_};
}

std::vector<ChoiceId> ChoiceId::steps() const {
  std::vector<ChoiceId> steps;
  for (std::string_view rest = text_;;) {
    const size_t end = std::min(rest.find('+'), rest.size());
    steps.push_back(ChoiceId(std::string(rest.substr(0, end)), rest.find('/')));
    if (end == rest.size()) return steps;
    rest.remove_prefix(end + 1);
  }
}

std::vector<ChoiceId> ChoiceId::StepsFor(size_t count) const {
  std::vector<ChoiceId> of_all = steps();
  if (of_all.size() == count) return of_all;
  if (of_all.size() != 1) return {};
  return std::vector<ChoiceId>(count, *this);
}

Result<ChoiceId> ChoiceId::ParseStep(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return Malformed(text, "there is no '/'");
  if (!IsBackendName(text.substr(0, slash))) {
    return Malformed(text, fmt::format("'{}' is not a backend name", text.substr(0, slash)));
  }
  const std::string_view rest = text.substr(slash + 1);
  const size_t question = rest.find('?');
  if (!IsWord(rest.substr(0, std::min(question, rest.size())))) {
    return Malformed(text, "the algorithm is not a word of a-z, 0-9, '_', '.', '-'");
  }
  if (question != std::string_view::npos) {
    std::string mistake = ParameterMistake(rest.substr(question + 1));
    if (!mistake.empty()) return Malformed(text, std::move(mistake));
  }
  return ChoiceId(std::string(text), slash);
}

Result<ChoiceId> ChoiceId::FromBackend(std::string_view backend, std::string_view choice_name) {
  Result<ChoiceId> id = Parse(fmt::format("{}/{}", backend, choice_name));
  if (!id) return id;
  for (const std::string_view key : kHostKeys) {
    if (id->HostKey(key).empty()) continue;
    return Malformed(id->text(), fmt::format("the key '{}' is the host's", key));
  }
  return id;
}

std::string ChoiceId::HostKey(std::string_view key) const {
  const std::string_view name = choice_name();
  const size_t question = name.find('?');
  if (question == std::string_view::npos) return "";
  for (std::string_view rest = name.substr(question + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == key) return std::string(pair.substr(equals + 1));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
  }
  return "";
}

ChoiceId ChoiceId::WithHostKey(std::string_view key, std::string_view value) const {
  std::vector<ChoiceId> changed;
  for (const ChoiceId& step : steps()) {
    const char* const mark = step.text_.find('?') == std::string::npos ? "?" : "&";
    changed.push_back({fmt::format("{}{}{}={}", step.text_, mark, key, value), step.slash_});
  }
  return Join(changed);
}

bool ChoiceId::has_host_keys() const {
  const std::vector<ChoiceId> all = steps();
  return std::any_of(all.begin(), all.end(), [](const ChoiceId& step) {
    return std::any_of(kHostKeys.begin(), kHostKeys.end(),
                       [&](std::string_view key) { return !step.HostKey(key).empty(); });
  });
}

ChoiceId ChoiceId::WithoutHostKeys() const { return Without(kHostKeys); }

ChoiceId ChoiceId::WithoutHostKey(std::string_view key) const { return Without({&key, 1}); }

ChoiceId ChoiceId::Without(std::span<const std::string_view> keys) const {
  std::vector<ChoiceId> changed;
  for (const ChoiceId& step : steps()) {
    std::string text = step.text_.substr(0, step.text_.find('?'));
    const char* mark = "?";
    for (const auto& [key, value] : step.parameters()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      text += fmt::format("{}{}={}", mark, key, value);
      mark = "&";
    }
    changed.push_back({std::move(text), step.slash_});
  }
  return Join(changed);
}

std::string_view ChoiceId::choice_name() const {
  const std::string_view name = std::string_view(text_).substr(slash_ + 1);
  return name.substr(0, std::min(name.find('+'), name.size()));
}

std::string_view ChoiceId::algorithm() const {
  const std::string_view name = choice_name();
  return name.substr(0, std::min(name.find('?'), name.size()));
}

std::vector<std::pair<std::string, std::string>> ChoiceId::parameters() const {
  std::vector<std::pair<std::string, std::string>> result;
  const std::string_view name = choice_name();
  const size_t question = name.find('?');
  if (question == std::string_view::npos) return result;
  std::string_view rest = name.substr(question + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const size_t equals = pair.find('=');
    result.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return result;
}

}  // namespace cotune
