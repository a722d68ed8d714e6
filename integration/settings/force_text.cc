#include "integration/settings/force_text.h"

#include <algorithm>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::string_view kSpaces = " \t";

std::string_view WithoutSpaces(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

tl::unexpected<Error> Wrong(std::string what, std::string cause) {
  return Fail(ErrorCode::kUsage, std::move(what), "", std::move(cause));
}

// `name` has "::".
bool IsOperatorName(std::string_view name) {
  const bool has_both_sides = !name.starts_with("::") && !name.ends_with("::");
  const bool has_two_parts = name.find("::") == name.rfind("::");
  return has_both_sides && has_two_parts && name.find_first_of(kSpaces) == std::string_view::npos;
}

// Adds an element whose name has "::".
Status AddOperator(std::string_view element, ForceText& split) {
  const size_t equals = std::min(element.find('='), element.size());
  const std::string_view name = WithoutSpaces(element.substr(0, equals));
  const bool has_equals = equals < element.size();
  if (!IsOperatorName(name)) {
    return Wrong(fmt::format("\"{}\" is no name of an operator", name), "give lib::op");
  }
  const std::string_view choice =
      has_equals ? WithoutSpaces(element.substr(equals + 1)) : std::string_view();
  if (choice.empty()) {
    return Wrong(fmt::format("\"{}\" names no choice", element),
                 has_equals ? "nothing follows its '='" : "it has no '='");
  }
  const auto known = std::find_if(split.operators.begin(), split.operators.end(),
                                  [&](const auto& each) { return each.first == name; });
  if (known != split.operators.end()) {
    return Wrong(fmt::format("{} stands twice", name),
                 fmt::format("with {} and with {}", known->second, choice));
  }
  split.operators.emplace_back(name, choice);
  return {};
}

}  // namespace

std::string ForceText::OperatorsText() const {
  std::string text;
  for (const auto& [name, choice] : operators) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, choice);
  }
  return text;
}

Result<ForceText> SplitForce(std::string_view text) {
  ForceText split;
  if (WithoutSpaces(text).empty()) return split;
  for (size_t number = 1;; ++number) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view element = WithoutSpaces(text.substr(0, comma));
    if (element.empty()) {
      return Wrong(fmt::format("element {} of the list is empty", number), "");
    }
    if (element.substr(0, element.find('=')).find("::") != std::string_view::npos) {
      COTUNE_RETURN_IF_ERROR(AddOperator(element, split));
    } else {
      split.collectives.append(split.collectives.empty() ? "" : ",").append(element);
    }
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(split.operators.begin(), split.operators.end());
  return split;
}

}  // namespace cotune
