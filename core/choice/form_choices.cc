#include "core/choice/form_choices.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/recipe/recipe_id.h"

namespace cotune {
namespace {

// One that was outpaced has no time that compares with those of the choices which stayed: its
// rounds were the first ones.
bool StayedInRace(const Verdict& verdict) {
  return verdict.has_time() && verdict.outcome == Outcome::kTimed;
}

// Choices with a key of the host in the order in which they get room: the backends of the first
// steps take turns, and each keeps the order of its own choices.
std::vector<Choice> InTurns(std::vector<Choice> choices) {
  std::vector<std::pair<size_t, size_t>> turns;  // the turn of each choice, and its place
  std::map<std::string, size_t, std::less<>> taken;
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string backend(choices[i].id.backend());
    turns.emplace_back(taken[backend]++, i);
  }
  std::sort(turns.begin(), turns.end());
  std::vector<Choice> ordered;
  for (const auto& [turn, i] : turns) ordered.push_back(std::move(choices[i]));
  return ordered;
}

}  // namespace

void FormChoices::Add(std::string via, ChoiceCombinations combinations) {
  forms_.push_back({std::move(via), std::move(combinations)});
}

Choice FormChoices::Named(Choice choice, const OfForm& form) {
  if (form.via.empty()) return choice;
  choice.id = choice.id.WithHostKey(kViaKey, form.via);
  choice.is_default = false;
  return choice;
}

void FormChoices::KeepPossible(std::function<bool(const Choice&)> is_possible) {
  is_possible_ = std::move(is_possible);
}

std::vector<Choice> FormChoices::NamedAndPossible(std::vector<Choice> choices,
                                                  const OfForm& form) const {
  std::vector<Choice> named;
  for (Choice& choice : choices) {
    Choice made = Named(std::move(choice), form);
    if (IsPossible(made)) named.push_back(std::move(made));
  }
  return named;
}

std::string FormChoices::default_numerics() const {
  if (forms_.empty()) return "";
  const std::vector<Choice> unfused = forms_.front().combinations.First();
  const auto found = std::find_if(unfused.begin(), unfused.end(),
                                  [](const Choice& choice) { return choice.is_default; });
  return found == unfused.end() ? "" : found->numerics;
}

FormChoices::FirstHeat FormChoices::First() const {
  FirstHeat heat;
  std::vector<Choice> others;      // with a key of the host
  std::vector<size_t> form_begin;  // in `others`
  for (const OfForm& form : forms_) {
    const size_t begin = others.size();
    std::vector<Choice> of_form;
    for (Choice& choice : NamedAndPossible(form.combinations.First(), form)) {
      (choice.id.has_host_keys() ? of_form : heat.choices).push_back(std::move(choice));
    }
    for (Choice& choice : InTurns(std::move(of_form))) others.push_back(std::move(choice));
    if (others.size() > begin) form_begin.push_back(begin);
  }
  for (size_t i = 0; i < others.size(); ++i) {
    const bool is_first_of_form =
        std::find(form_begin.begin(), form_begin.end(), i) != form_begin.end();
    // Room for the first choices of the forms that follow.
    const auto firsts_behind =
        static_cast<size_t>(std::count_if(form_begin.begin(), form_begin.end(), [&](size_t begin) {
          return begin > i && begin < others.size();
        }));
    if (is_first_of_form || heat.choices.size() + firsts_behind < kHeatChoicesMax) {
      heat.choices.push_back(std::move(others[i]));
    } else {
      heat.left_out.push_back(others[i].id);
    }
  }
  return heat;
}

size_t FormChoices::best_max() const {
  std::map<std::string, size_t, std::less<>> left_out;  // by `via`
  for (const ChoiceId& id : First().left_out) ++left_out[id.HostKey(kViaKey)];
  size_t most = 0;
  for (const OfForm& form : forms_) {
    most = std::max(most,
                    std::min(form.combinations.best_max() + left_out[form.via], kHeatChoicesMax));
  }
  return most;
}

std::vector<Choice> FormChoices::Best(std::span<const Verdict> verdicts) const {
  // The verdicts of each form, by the ids that its combinations know.
  std::vector<std::vector<Verdict>> of_forms(forms_.size());
  size_t fastest = 0;
  int64_t fastest_ns = -1;
  for (const Verdict& verdict : verdicts) {
    const std::string via = verdict.id.HostKey(kViaKey);
    const auto form = std::find_if(forms_.begin(), forms_.end(),
                                   [&](const OfForm& each) { return each.via == via; });
    if (form == forms_.end()) continue;
    const auto index = static_cast<size_t>(form - forms_.begin());
    of_forms[index].push_back(verdict);
    of_forms[index].back().id = verdict.id.WithoutHostKey(kViaKey);
    if (!StayedInRace(verdict) || (fastest_ns >= 0 && verdict.median_ns >= fastest_ns)) continue;
    fastest = index;
    fastest_ns = verdict.median_ns;
  }
  if (forms_.empty()) return {};
  const OfForm& form = forms_[fastest];
  std::vector<Choice> best = NamedAndPossible(form.combinations.Best(of_forms[fastest]), form);
  if (fastest_ns < 0) return best;
  for (const ChoiceId& id : First().left_out) {
    const bool is_known = std::any_of(best.begin(), best.end(),
                                      [&](const Choice& choice) { return choice.id == id; });
    if (is_known || id.HostKey(kViaKey) != form.via || best.size() >= kHeatChoicesMax) continue;
    if (std::optional<Choice> found = Find(id)) best.push_back(*std::move(found));
  }
  return best;
}

std::optional<Choice> FormChoices::Find(const ChoiceId& id) const {
  const std::string via = id.HostKey(kViaKey);
  for (const OfForm& form : forms_) {
    if (form.via != via) continue;
    std::optional<Choice> found = form.combinations.Find(id.WithoutHostKey(kViaKey));
    if (!found) return std::nullopt;
    Choice named = Named(*std::move(found), form);
    // A step may have another key of the host, or lack this one.
    if (named.id != ChoiceId::Join(id.steps()) || !IsPossible(named)) return std::nullopt;
    return named;
  }
  return std::nullopt;
}

}  // namespace cotune
