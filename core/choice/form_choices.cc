#include "core/choice/form_choices.h"

#include <algorithm>
#include <utility>

namespace cotune {
namespace {

constexpr std::string_view kVia = "via";

bool HasRaced(const Verdict& verdict) {
  return verdict.has_time() &&
         (verdict.outcome == Outcome::kTimed || verdict.outcome == Outcome::kOutpaced);
}

}  // namespace

void FormChoices::Add(std::string via, ChoiceCombinations combinations) {
  forms_.push_back({std::move(via), std::move(combinations)});
}

Choice FormChoices::Named(Choice choice, const OfForm& form) {
  if (form.via.empty()) return choice;
  choice.id = choice.id.WithHostKey(kVia, form.via);
  choice.is_default = false;
  return choice;
}

std::vector<Choice> FormChoices::First() const {
  std::vector<Choice> choices;
  for (const OfForm& form : forms_) {
    for (Choice& choice : form.combinations.First()) {
      choices.push_back(Named(std::move(choice), form));
    }
  }
  return choices;
}

size_t FormChoices::best_max() const {
  size_t most = 0;
  for (const OfForm& form : forms_) most = std::max(most, form.combinations.best_max());
  return most;
}

std::vector<Choice> FormChoices::Best(std::span<const Verdict> verdicts) const {
  // The verdicts of each form, by the ids that its combinations know.
  std::vector<std::vector<Verdict>> of_forms(forms_.size());
  size_t fastest = 0;
  int64_t fastest_ns = -1;
  for (const Verdict& verdict : verdicts) {
    const std::string via = verdict.id.HostKey(kVia);
    const auto form = std::find_if(forms_.begin(), forms_.end(),
                                   [&](const OfForm& each) { return each.via == via; });
    if (form == forms_.end()) continue;
    const auto index = static_cast<size_t>(form - forms_.begin());
    of_forms[index].push_back(verdict);
    of_forms[index].back().id = verdict.id.WithoutHostKeys();
    if (!HasRaced(verdict) || (fastest_ns >= 0 && verdict.median_ns >= fastest_ns)) continue;
    fastest = index;
    fastest_ns = verdict.median_ns;
  }
  if (forms_.empty()) return {};
  std::vector<Choice> choices = forms_[fastest].combinations.Best(of_forms[fastest]);
  for (Choice& choice : choices) choice = Named(std::move(choice), forms_[fastest]);
  return choices;
}

std::optional<Choice> FormChoices::Find(const ChoiceId& id) const {
  const std::string via = id.HostKey(kVia);
  for (const OfForm& form : forms_) {
    if (form.via != via) continue;
    std::optional<Choice> found = form.combinations.Find(id.WithoutHostKeys());
    if (!found) return std::nullopt;
    Choice named = Named(*std::move(found), form);
    // A step may have another key of the host, or lack this one.
    if (named.id != id) return std::nullopt;
    return named;
  }
  return std::nullopt;
}

}  // namespace cotune
