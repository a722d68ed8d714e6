#include "core/choice/form_choices.h"

#include <algorithm>
#include <cstdint>
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
  size_t combined = 0;
  size_t most_left_out = 0;
  for (const OfForm& form : forms_) {
    combined += form.combinations.best_max();
    most_left_out = std::max(most_left_out, left_out[form.via]);
  }
  return std::min(combined + most_left_out, kHeatChoicesMax);
}

std::vector<FormChoices::RacedForm> FormChoices::RacedForms(
    std::span<const Verdict> verdicts) const {
  std::vector<RacedForm> raced;
  for (const OfForm& form : forms_) raced.push_back({&form, {}, INT64_MAX});
  for (const Verdict& verdict : verdicts) {
    const std::string via = verdict.id.HostKey(kViaKey);
    const auto of_form = std::find_if(raced.begin(), raced.end(),
                                      [&](const RacedForm& each) { return each.form->via == via; });
    if (of_form == raced.end()) continue;
    of_form->verdicts.push_back(verdict);
    of_form->verdicts.back().id = verdict.id.WithoutHostKey(kViaKey);
    if (StayedInRace(verdict)) {
      of_form->fastest_ns = std::min(of_form->fastest_ns, verdict.median_ns);
    }
  }
  std::stable_sort(raced.begin(), raced.end(), [](const RacedForm& a, const RacedForm& b) {
    return a.fastest_ns < b.fastest_ns;
  });
  return raced;
}

std::vector<Choice> FormChoices::Best(std::span<const Verdict> verdicts) const {
  const std::vector<RacedForm> raced = RacedForms(verdicts);
  if (raced.empty()) return {};
  const auto combined = [&](const RacedForm& each) {
    return NamedAndPossible(each.form->combinations.Best(each.verdicts), *each.form);
  };
  std::vector<Choice> best;
  const auto add = [&](Choice choice) {
    const bool is_known = std::any_of(best.begin(), best.end(),
                                      [&](const Choice& other) { return other.id == choice.id; });
    if (!is_known && best.size() < kHeatChoicesMax) best.push_back(std::move(choice));
  };
  for (Choice& choice : combined(raced.front())) add(std::move(choice));
  if (raced.front().fastest_ns == INT64_MAX) return best;
  for (const ChoiceId& id : First().left_out) {
    if (id.HostKey(kViaKey) != raced.front().form->via) continue;
    if (std::optional<Choice> found = Find(id)) add(*std::move(found));
  }
  for (size_t i = 1; i < raced.size(); ++i) {
    const int64_t guess_ns = raced[i].form->combinations.GuessBestNs(raced[i].verdicts);
    if (guess_ns >= raced.front().fastest_ns) continue;
    for (Choice& choice : combined(raced[i])) add(std::move(choice));
  }
  return best;
}

std::vector<ChoiceId> FormChoices::SetAside(std::span<const Verdict> verdicts) const {
  std::vector<ChoiceId> set_aside;
  for (const RacedForm& raced : RacedForms(verdicts)) {
    for (const ChoiceId& id : raced.form->combinations.SetAside(raced.verdicts)) {
      const std::string& via = raced.form->via;
      const ChoiceId named = via.empty() ? id : id.WithHostKey(kViaKey, via);
      if (Find(named)) set_aside.push_back(named);
    }
  }
  return set_aside;
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
