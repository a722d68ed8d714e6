#include "core/choice/numerics.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// The choice whose class counts where no choice adds up in the order of ranks.
const Choice& DefaultOf(const ChoiceList& list) {
  const auto found = std::find_if(list.choices.begin(), list.choices.end(),
                                  [](const Choice& choice) { return choice.is_default; });
  return found == list.choices.end() ? list.choices.front() : *found;
}

bool HasRankOrder(const ChoiceList& list) {
  return std::any_of(list.choices.begin(), list.choices.end(),
                     [](const Choice& choice) { return choice.numerics == kRankOrderNumerics; });
}

std::string WhyNot(const Choice& choice) {
  if (choice.numerics.empty()) {
    return "numerics=same: its backend does not say in which order it combines elements";
  }
  return fmt::format("numerics=same: adds in another order ({})", choice.numerics);
}

void MarkDefault(std::vector<Choice>& choices) {
  if (choices.empty()) return;
  const auto is_default = [](const Choice& choice) { return choice.is_default; };
  if (std::any_of(choices.begin(), choices.end(), is_default)) return;
  Choice* cheapest = &choices.front();
  for (Choice& choice : choices) {
    if (choice.id.backend() != choices.front().id.backend() || choice.cost_us < 0) continue;
    if (cheapest->cost_us < 0 || choice.cost_us < cheapest->cost_us) cheapest = &choice;
  }
  cheapest->is_default = true;
}

}  // namespace

void KeepOneNumerics(ChoiceList& list) {
  if (list.choices.empty()) return;
  const Choice by_default = DefaultOf(list);
  const std::string kept =
      HasRankOrder(list) ? std::string(kRankOrderNumerics) : by_default.numerics;
  std::vector<Choice> choices;
  for (Choice& choice : list.choices) {
    // A class that is unknown is that of one choice alone.
    const bool is_kept = kept.empty() ? choice.id == by_default.id : choice.numerics == kept;
    if (is_kept || choice.numerics == kExactNumerics) {
      choices.push_back(std::move(choice));
    } else {
      list.refusals.push_back({choice.id.text(), WhyNot(choice)});
    }
  }
  list.choices = std::move(choices);
  MarkDefault(list.choices);
}

void KeepNumericsOf(std::span<const Choice> bare, ChoiceList& list) {
  const auto other = std::find_if(bare.begin(), bare.end(), [](const Choice& choice) {
    return choice.numerics != kExactNumerics;
  });
  const std::string kept = other == bare.end() ? std::string(kExactNumerics) : other->numerics;
  std::vector<Choice> choices;
  for (Choice& choice : list.choices) {
    // A class that is unknown compares with no other choice, even if that has an unknown one, too.
    const bool is_kept = !choice.numerics.empty() && choice.numerics == kept;
    if (is_kept || choice.numerics == kExactNumerics) {
      choices.push_back(std::move(choice));
    } else {
      list.refusals.push_back({choice.id.text(), WhyNot(choice)});
    }
  }
  list.choices = std::move(choices);
}

std::string JoinNumerics(std::span<const std::string> classes) {
  std::set<std::string_view> distinct;
  for (const std::string& each : classes) {
    if (each.empty()) return "";
    if (each != kExactNumerics) distinct.insert(each);
  }
  return distinct.empty() ? std::string(kExactNumerics)
                          : fmt::format("{}", fmt::join(distinct, "+"));
}

}  // namespace cotune
