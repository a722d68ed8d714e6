#include "core/choice/leading_choices.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

namespace cotune {
namespace {

using Parameter = std::pair<std::string, std::string>;

bool IsOfHost(std::string_view key) {
  return std::find(kHostKeys.begin(), kHostKeys.end(), key) != kHostKeys.end();
}

bool IsNumber(std::string_view value) {
  return !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
}

// The parameters by whose values alone the choices of a family differ.
std::vector<Parameter> NumbersOf(const ChoiceId& id) {
  std::vector<Parameter> numbers = id.parameters();
  std::erase_if(numbers, [](const Parameter& each) {
    return IsOfHost(each.first) || !IsNumber(each.second);
  });
  return numbers;
}

struct Family {
  std::vector<size_t> members;  // positions in the list
  size_t leading = 0;
  bool has_default_numbers = false;  // the leading choice has the numbers of the default choice
  bool has_estimates = true;
};

}  // namespace

std::string FamilyOf(const ChoiceId& id) {
  std::string family(id.backend());
  family.append("/").append(id.algorithm());
  for (const auto& [key, value] : id.parameters()) {
    const bool differs = !IsOfHost(key) && IsNumber(value);
    family.append("&").append(key).append("=").append(differs ? "" : value);
  }
  return family;
}

std::vector<bool> LeadingChoices(std::span<const Choice> choices, const ChoiceId& default_id) {
  const std::vector<Parameter> default_numbers = NumbersOf(default_id);
  std::map<std::string, Family> families;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    Family& family = families[FamilyOf(choice.id)];
    const bool has_default_numbers =
        choice.id.backend() == default_id.backend() && NumbersOf(choice.id) == default_numbers;
    const bool is_cheaper =
        !family.has_default_numbers && choice.cost_us < choices[family.leading].cost_us;
    if (family.members.empty() || has_default_numbers || is_cheaper) family.leading = i;
    family.has_default_numbers = family.has_default_numbers || has_default_numbers;
    family.has_estimates = family.has_estimates && choice.cost_us >= 0;
    family.members.push_back(i);
  }
  std::vector<bool> leads(choices.size(), false);
  for (const auto& [name, family] : families) {
    leads[family.leading] = true;
    if (family.has_default_numbers || family.has_estimates) continue;
    for (const size_t member : family.members) leads[member] = true;
  }
  return leads;
}

}  // namespace cotune
