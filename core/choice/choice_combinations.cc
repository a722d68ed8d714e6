#include "core/choice/choice_combinations.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/choice/leading_choices.h"
#include "core/choice/numerics.h"

namespace cotune {
namespace {

// Combinations that the second race adds, at most; fewer of a rewritten form, because it races
// beside the program as it is.
constexpr size_t kBestMax = 16;
constexpr size_t kBestOfRewrittenMax = 8;

// A rewritten form has all combinations of its leading choices in the first race if they are so
// many or fewer. One default that fails hides none of the others then.
constexpr size_t kFirstOfRewrittenMax = 16;

const Verdict* FindVerdict(std::span<const Verdict> verdicts, const ChoiceId& id) {
  const auto found = std::find_if(verdicts.begin(), verdicts.end(),
                                  [&](const Verdict& verdict) { return verdict.id == id; });
  return found == verdicts.end() ? nullptr : &*found;
}

bool HasRaced(const Verdict* verdict) {
  return verdict != nullptr && verdict->has_time() &&
         (verdict->outcome == Outcome::kTimed || verdict->outcome == Outcome::kOutpaced);
}

// Returns the number of choices of each of `groups` groups, one at least, that gives best_max
// combinations or fewer; 1 at least.
size_t ChoicesOfEach(size_t groups, size_t best_max) {
  size_t count = 1;
  while (true) {
    size_t product = 1;
    for (size_t group = 0; group < groups && product <= best_max; ++group) product *= count + 1;
    if (product > best_max) return count;
    ++count;
  }
}

}  // namespace

bool ChoiceCombinations::AddToEqual(const Problem& problem, const std::string& surroundings,
                                    size_t place) {
  const auto known = std::find_if(groups_.begin(), groups_.end(), [&](const Equal& group) {
    return group.problem == problem && group.surroundings == surroundings;
  });
  if (known == groups_.end()) return false;
  known->places.push_back(place);
  return true;
}

void ChoiceCombinations::Add(const Problem& problem, std::string surroundings, size_t place,
                             std::vector<Choice> choices) {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [](const Choice& choice) { return choice.is_default; });
  const auto at = found == choices.end() ? choices.begin() : found;
  const auto default_index = static_cast<size_t>(at - choices.begin());
  const auto first_in_region =
      std::find_if(choices.begin(), choices.end(),
                   [](const Choice& choice) { return choice.id.has_host_keys(); });
  const auto bare_choices = static_cast<size_t>(first_in_region - choices.begin());
  std::vector<bool> is_first(choices.size(), true);
  if (!choices.empty()) is_first = LeadingChoices(choices, choices[default_index].id);
  if (form_ == Form::kUnchanged) std::fill_n(is_first.begin(), bare_choices, true);
  groups_.push_back({problem,
                     std::move(surroundings),
                     {place},
                     std::move(choices),
                     bare_choices,
                     default_index,
                     std::move(is_first)});
}

size_t ChoiceCombinations::Equal::first_bare_choices() const {
  const auto end = is_first.begin() + static_cast<std::ptrdiff_t>(bare_choices);
  return static_cast<size_t>(std::count(is_first.begin(), end, true));
}

std::vector<Choice> ChoiceCombinations::First() const {
  std::vector<Choice> combined;
  if (is_empty()) return combined;
  const Pick defaults = Defaults();
  // Adds what leaves the default of one group, for another choice of it by itself or in a region.
  const auto add_singles = [&](bool in_region) {
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (size_t i = 0; i < groups_[group].choices.size(); ++i) {
        const bool is_in_region = i >= groups_[group].bare_choices;
        if (i == defaults[group] || is_in_region != in_region) continue;
        if (!groups_[group].is_first[i]) continue;
        Pick pick = defaults;
        pick[group] = i;
        combined.push_back(Combine(pick));
      }
    }
  };
  if (has_all_bare_first()) {
    std::vector<std::vector<size_t>> positions;
    for (const Equal& group : groups_) {
      std::vector<size_t>& of_group = positions.emplace_back();
      for (size_t i = 0; i < group.bare_choices; ++i) {
        if (group.is_first[i]) of_group.push_back(i);
      }
    }
    for (const Pick& pick : Product(positions)) combined.push_back(Combine(pick));
  } else {
    combined.push_back(Combine(defaults));
    add_singles(false);
  }
  add_singles(true);
  return combined;
}

std::vector<Choice> ChoiceCombinations::Best(std::span<const Verdict> verdicts) const {
  if (has_all_first()) return {};
  std::vector<std::vector<size_t>> positions;
  const size_t count = choices_of_each();
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<size_t>& fastest = positions.emplace_back(Fastest(group, verdicts));
    if (form_ == Form::kRewritten || has_regions()) KeepLevel(group, verdicts, fastest);
    fastest.resize(std::min(fastest.size(), count));
  }
  std::vector<Choice> combined;
  for (const Pick& pick : Product(positions)) {
    if (FindVerdict(verdicts, IdOf(pick)) == nullptr) combined.push_back(Combine(pick));
  }
  const auto is_empty = [](const auto& of_group) { return of_group.empty(); };
  if (std::any_of(positions.begin(), positions.end(), is_empty)) return combined;
  Pick fastest;
  for (const std::vector<size_t>& of_group : positions) fastest.push_back(of_group.front());
  for (size_t group = 0; group < groups_.size(); ++group) {
    Pick pick = fastest;
    for (const size_t i : OthersOfFamilies(group, verdicts, fastest[group])) {
      pick[group] = i;
      combined.push_back(Combine(pick));
    }
  }
  return combined;
}

std::vector<size_t> ChoiceCombinations::OthersOfFamilies(size_t group,
                                                         std::span<const Verdict> verdicts,
                                                         size_t fastest) const {
  const Equal& of_group = groups_[group];
  std::set<std::string> families = {FamilyOf(of_group.choices[fastest].id)};
  const std::vector<size_t> by_time = Fastest(group, verdicts);
  const auto in_region = std::find_if(by_time.begin(), by_time.end(),
                                      [&](size_t i) { return i >= of_group.bare_choices; });
  if (in_region != by_time.end()) families.insert(FamilyOf(of_group.choices[*in_region].id));
  for (size_t i = 0; i < of_group.choices.size(); ++i) {
    const bool has_failed = of_group.is_first[i] && !HasRaced(VerdictOf(group, i, verdicts));
    if (has_failed) families.insert(FamilyOf(of_group.choices[i].id));
  }
  std::vector<size_t> others;
  for (size_t i = 0; i < of_group.choices.size(); ++i) {
    const bool is_first = of_group.is_first[i];
    if (!is_first && families.contains(FamilyOf(of_group.choices[i].id))) others.push_back(i);
  }
  return others;
}

std::vector<ChoiceId> ChoiceCombinations::SetAside(std::span<const Verdict> verdicts) const {
  std::vector<ChoiceId> set_aside;
  if (is_empty()) return set_aside;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const Equal& of_group = groups_[group];
    for (size_t i = 0; i < of_group.choices.size(); ++i) {
      if (of_group.is_first[i]) continue;
      const bool has_verdict =
          std::any_of(verdicts.begin(), verdicts.end(), [&](const Verdict& verdict) {
            const std::vector<ChoiceId> steps = verdict.id.StepsFor(collectives_);
            return !steps.empty() && steps[of_group.places.front()] == of_group.choices[i].id;
          });
      if (has_verdict) continue;
      Pick pick = Defaults();
      pick[group] = i;
      set_aside.push_back(IdOf(pick));
    }
  }
  return set_aside;
}

int64_t ChoiceCombinations::GuessBestNs(std::span<const Verdict> verdicts) const {
  const auto is_empty = [](const Equal& group) { return group.choices.empty(); };
  if (groups_.empty() || std::any_of(groups_.begin(), groups_.end(), is_empty)) return INT64_MAX;
  const Pick defaults = Defaults();
  const Verdict* const by_default = FindVerdict(verdicts, IdOf(defaults));
  if (!HasRaced(by_default)) return INT64_MAX;
  int64_t guess_ns = by_default->median_ns;
  for (size_t group = 0; group < groups_.size(); ++group) {
    int64_t saved_ns = 0;
    Pick pick = defaults;
    for (size_t i = 0; i < groups_[group].choices.size(); ++i) {
      pick[group] = i;
      const Verdict* const verdict = FindVerdict(verdicts, IdOf(pick));
      // The fastest of many choices within the noise seems to save something each time.
      if (!HasRaced(verdict) || verdict->interval_high_ns >= by_default->median_ns) continue;
      saved_ns = std::max(saved_ns, by_default->median_ns - verdict->median_ns);
    }
    guess_ns -= saved_ns;
  }
  return guess_ns;
}

std::optional<Choice> ChoiceCombinations::Find(const ChoiceId& id) const {
  const std::vector<ChoiceId> steps = id.StepsFor(collectives_);
  if (steps.empty() || groups_.empty()) return std::nullopt;
  Pick pick;
  for (const Equal& group : groups_) {
    const ChoiceId& wanted = steps[group.places.front()];
    const auto found = std::find_if(group.choices.begin(), group.choices.end(),
                                    [&](const Choice& choice) { return choice.id == wanted; });
    if (found == group.choices.end()) return std::nullopt;
    pick.push_back(static_cast<size_t>(found - group.choices.begin()));
  }
  // Another step of one of the groups may want another choice.
  if (IdOf(pick) != ChoiceId::Join(steps)) return std::nullopt;
  return Combine(pick);
}

bool ChoiceCombinations::has_all_bare_first() const {
  double all = 1;
  double singles = 1;  // the defaults, and what differs from them in one
  for (const Equal& group : groups_) {
    const auto choices = static_cast<double>(group.first_bare_choices());
    all *= choices;
    singles += choices - 1;
  }
  const size_t most = form_ == Form::kUnchanged ? kHeatChoicesMax : kFirstOfRewrittenMax;
  return all <= static_cast<double>(most) || all == singles;
}

size_t ChoiceCombinations::choices_of_each() const {
  const size_t best_max = form_ == Form::kUnchanged ? kBestMax : kBestOfRewrittenMax;
  return ChoicesOfEach(groups_with_several(), best_max);
}

bool ChoiceCombinations::is_empty() const {
  return groups_.empty() || std::any_of(groups_.begin(), groups_.end(),
                                        [](const Equal& group) { return group.bare_choices == 0; });
}

bool ChoiceCombinations::has_all_first() const {
  if (is_empty()) return true;
  const bool has_others = std::any_of(groups_.begin(), groups_.end(), [](const Equal& group) {
    return std::count(group.is_first.begin(), group.is_first.end(), false) > 0;
  });
  return !has_others && has_all_bare_first() && (!has_regions() || groups_with_several() == 1);
}

bool ChoiceCombinations::has_regions() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Equal& group) { return group.choices.size() > group.bare_choices; });
}

size_t ChoiceCombinations::best_max() const {
  if (has_all_first()) return 0;
  size_t product = 1;
  const size_t count = choices_of_each();
  size_t others = 0;
  for (const Equal& group : groups_) {
    const auto left_out =
        static_cast<size_t>(std::count(group.is_first.begin(), group.is_first.end(), false));
    product *= std::min(count, group.choices.size() - left_out);
    others += left_out;
  }
  return product + others;
}

size_t ChoiceCombinations::groups_with_several() const {
  return static_cast<size_t>(std::count_if(
      groups_.begin(), groups_.end(), [](const Equal& group) { return group.choices.size() > 1; }));
}

ChoiceCombinations::Pick ChoiceCombinations::Defaults() const {
  Pick defaults;
  for (const Equal& group : groups_) defaults.push_back(group.default_index);
  return defaults;
}

std::vector<ChoiceCombinations::Pick> ChoiceCombinations::Product(
    const std::vector<std::vector<size_t>>& positions) {
  std::vector<Pick> picks(1);
  for (const std::vector<size_t>& of_group : positions) {
    std::vector<Pick> longer;
    for (const Pick& pick : picks) {
      for (const size_t position : of_group) {
        longer.push_back(pick);
        longer.back().push_back(position);
      }
    }
    picks = std::move(longer);
  }
  return picks;
}

std::vector<size_t> ChoiceCombinations::Fastest(size_t group,
                                                std::span<const Verdict> verdicts) const {
  std::vector<std::pair<int64_t, size_t>> by_time;
  std::vector<size_t> without_time;
  for (size_t i = 0; i < groups_[group].choices.size(); ++i) {
    const Verdict* const verdict = VerdictOf(group, i, verdicts);
    if (HasRaced(verdict)) {
      by_time.emplace_back(verdict->median_ns, i);
    } else if (verdict != nullptr) {
      without_time.push_back(i);  // one without a verdict was left out
    }
  }
  std::vector<size_t> fastest;
  std::sort(by_time.begin(), by_time.end());
  for (const auto& [median_ns, i] : by_time) fastest.push_back(i);
  // The defaults of the other collectives may be what failed.
  if (fastest.empty()) fastest = std::move(without_time);
  return fastest;
}

void ChoiceCombinations::KeepLevel(size_t group, std::span<const Verdict> verdicts,
                                   std::vector<size_t>& fastest) const {
  if (fastest.empty()) return;
  const Verdict* const best = VerdictOf(group, fastest.front(), verdicts);
  std::erase_if(fastest, [&](size_t i) {
    return VerdictOf(group, i, verdicts)->interval_low_ns > best->median_ns;
  });
}

const Verdict* ChoiceCombinations::VerdictOf(size_t group, size_t choice,
                                             std::span<const Verdict> verdicts) const {
  Pick pick = Defaults();
  pick[group] = choice;
  return FindVerdict(verdicts, IdOf(pick));
}

Choice ChoiceCombinations::Combine(const Pick& pick) const {
  std::vector<const Choice*> of_place(collectives_);
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const size_t place : groups_[i].places) of_place[place] = &groups_[i].choices[pick[i]];
  }
  std::vector<std::string> classes;
  Choice combined = *of_place.front();
  combined.id = IdOf(pick);
  combined.fits_any_region = true;
  combined.cost_us = 0;
  combined.workspace_bytes = 0;
  for (const Choice* each : of_place) {
    classes.push_back(each->numerics);
    combined.is_default = combined.is_default && each->is_default;
    combined.is_capturable = combined.is_capturable && each->is_capturable;
    combined.is_reproducible = combined.is_reproducible && each->is_reproducible;
    combined.prepare_is_collective = combined.prepare_is_collective || each->prepare_is_collective;
    const bool fits = each->fits_any_region || !each->id.has_host_keys();
    combined.fits_any_region = combined.fits_any_region && fits;
    const bool has_costs = combined.cost_us >= 0 && each->cost_us >= 0;
    combined.cost_us = has_costs ? combined.cost_us + each->cost_us : -1;
    combined.workspace_bytes += each->workspace_bytes;
  }
  combined.numerics = JoinNumerics(classes);
  return combined;
}

ChoiceId ChoiceCombinations::IdOf(const Pick& pick) const {
  std::vector<ChoiceId> ids;
  for (size_t place = 0; place < collectives_; ++place) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      const std::vector<size_t>& places = groups_[i].places;
      if (std::find(places.begin(), places.end(), place) == places.end()) continue;
      ids.push_back(groups_[i].choices[pick[i]].id);
    }
  }
  return ChoiceId::Join(ids);
}

}  // namespace cotune
