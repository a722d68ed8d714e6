#include "core/problem/forced_choices.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

std::string_view WithoutSpaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

tl::unexpected<Error> Wrong(std::string what, std::string cause = "") {
  return Fail(ErrorCode::kUsage, std::move(what), "", std::move(cause),
              "write for example all_reduce=nccl/auto,all_gather=host/ring");
}

// One element of the list.
Result<std::pair<Collective, ChoiceId>> ParseElement(std::string_view element) {
  const size_t equals = element.find('=');
  if (equals == std::string_view::npos) {
    return Wrong(fmt::format("\"{}\" names no choice", element), "it has no '='");
  }
  const std::string_view name = WithoutSpaces(element.substr(0, equals));
  const Result<Collective> collective = ParseCollective(name);
  if (!collective) {
    return Wrong(fmt::format("\"{}\" is no collective", name), collective.error().next_step);
  }
  const std::string_view text = WithoutSpaces(element.substr(equals + 1));
  Result<ChoiceId> choice = ChoiceId::Parse(text);
  if (!choice) {
    return Wrong(fmt::format("\"{}\" is no id of a choice", text), choice.error().cause);
  }
  if (choice->has_steps() || choice->has_host_keys()) {
    return Wrong(fmt::format("\"{}\" is a choice of a program", text),
                 "a forced choice runs one collective by itself");
  }
  return std::pair(*collective, *std::move(choice));
}

}  // namespace

Result<ForcedChoices> ForcedChoices::Parse(std::string_view text) {
  ForcedChoices forced;
  if (WithoutSpaces(text).empty()) return forced;
  for (size_t number = 1;; ++number) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view element = WithoutSpaces(text.substr(0, comma));
    if (element.empty()) {
      return Wrong(fmt::format("element {} of the list is empty", number));
    }
    COTUNE_TRY(auto read, ParseElement(element));
    const auto [known, is_new] = forced.choices_.emplace(read);
    if (!is_new) {
      return Wrong(fmt::format("{} stands twice", Name(read.first)),
                   fmt::format("with {} and with {}", known->second.text(), read.second.text()));
    }
    if (comma == text.size()) return forced;
    text.remove_prefix(comma + 1);
  }
}

const ChoiceId* ForcedChoices::Find(Collective collective) const {
  const auto found = choices_.find(collective);
  return found == choices_.end() ? nullptr : &found->second;
}

std::string ForcedChoices::text() const {
  std::string text;
  for (const auto& [collective, choice] : choices_) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", Name(collective), choice.text());
  }
  return text;
}

}  // namespace cotune
