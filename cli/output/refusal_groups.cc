#include "cli/output/refusal_groups.h"

#include <algorithm>
#include <map>
#include <span>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune::cli {
namespace {

constexpr size_t kNamedMax = 3;

std::string ChoicesText(const std::vector<std::string>& choices) {
  const size_t named = std::min(choices.size(), kNamedMax);
  std::string text = fmt::format("{}", fmt::join(std::span(choices).first(named), ", "));
  if (named == choices.size()) return text;
  return text + fmt::format(" and {} more ({} in all)", choices.size() - named, choices.size());
}

}  // namespace

std::vector<RefusalGroup> GroupByReason(const std::vector<Refusal>& refusals) {
  std::map<std::string, std::vector<std::string>> choices;
  std::vector<RefusalGroup> groups;
  for (const Refusal& refusal : refusals) {
    std::vector<std::string>& of_reason = choices[refusal.reason];
    if (of_reason.empty()) groups.push_back({"", refusal.reason});
    of_reason.push_back(refusal.choice);
  }
  for (RefusalGroup& group : groups) group.choices = ChoicesText(choices.at(group.reason));
  return groups;
}

}  // namespace cotune::cli
