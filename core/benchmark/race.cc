#include "core/benchmark/race.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace cotune {
namespace {

constexpr double kLeaderIntervalPercent = 1.0;

// One sample may be a spike.
constexpr int32_t kRoundsBeforeLimits = 2;

}  // namespace

Race::Race(size_t choice_count, size_t default_index, const RaceRules& rules)
    : choices_(choice_count),
      default_index_(default_index),
      rules_(rules),
      is_qualifying_(rules.qualifying_rounds > 0) {
  COTUNE_CHECK(default_index == SIZE_MAX || default_index < choice_count,
               "the default is one of the choices");
}

std::vector<size_t> Race::Racing() const {
  std::vector<size_t> racing;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].state == State::kRacing) racing.push_back(i);
  }
  return racing;
}

std::vector<size_t> Race::NextRound() const {
  if (stopped_ || rounds_ >= rules_.max_rounds) return {};
  std::vector<size_t> order = Racing();
  if (order.empty() || Decided()) return {};
  std::rotate(order.begin(), order.begin() + rounds_ % static_cast<int64_t>(order.size()),
              order.end());
  return order;
}

void Race::AddRound(const std::vector<size_t>& order, const std::vector<int64_t>& times_ns) {
  COTUNE_CHECK(order.size() == times_ns.size(), "every choice of the round has a time");
  ++rounds_;
  for (size_t i = 0; i < order.size(); ++i) {
    COTUNE_CHECK(order[i] < choices_.size(), "a round runs choices of the race");
    Standing& choice = choices_[order[i]];
    choice.by_round_ns.resize(static_cast<size_t>(rounds_));
    if (times_ns[i] <= 0) continue;
    choice.by_round_ns.back() = times_ns[i];
    choice.samples_ns.push_back(times_ns[i]);
    choice.best_ns = std::min(choice.best_ns, times_ns[i]);
    choice.interval = MedianWithInterval(choice.samples_ns);
  }
  const size_t leader = Leader();
  if (leader != SIZE_MAX) EliminateSlower(leader);
  EliminateBeyondLimit();
}

bool Race::HasQualified() const {
  // Short samples that eliminate hardly a choice cost more than they save.
  constexpr size_t kFew = 3;
  const bool has_few = !rules_.only_qualifies && Racing().size() <= kFew;
  return is_qualifying_ && (rounds_ >= rules_.qualifying_rounds || has_few);
}

void Race::EliminateUnqualified() {
  std::vector<std::pair<int64_t, size_t>> by_best;
  for (const size_t i : Racing()) {
    const bool has_sample = !choices_[i].samples_ns.empty();
    if (i != default_index_ && has_sample) by_best.emplace_back(choices_[i].best_ns, i);
  }
  std::sort(by_best.begin(), by_best.end());
  for (size_t at = rules_.qualified_max; at < by_best.size(); ++at) {
    choices_[by_best[at].second].state = State::kEliminated;
  }
}

void Race::EndQualifying(bool discards_samples) {
  is_qualifying_ = false;
  if (!discards_samples) return;
  for (const size_t i : Racing()) ClearSamples(i);
  first_round_ = rounds_;
}

void Race::ClearSamples(size_t index) {
  COTUNE_CHECK(index < choices_.size(), "samples belong to a choice of the race");
  Standing cleared;
  cleared.state = choices_[index].state;
  cleared.changes_form = choices_[index].changes_form;
  choices_[index] = std::move(cleared);
}

void Race::SetChangesForm(size_t index) {
  COTUNE_CHECK(index < choices_.size(), "a form is that of a choice of the race");
  choices_[index].changes_form = true;
}

void Race::Disqualify(size_t index) {
  COTUNE_CHECK(index < choices_.size(), "only a choice of the race is disqualified");
  choices_[index].state = State::kDisqualified;
}

size_t Race::Leader() const {
  size_t leader = SIZE_MAX;
  for (size_t i : Racing()) {
    if (choices_[i].samples_ns.empty()) continue;
    if (leader == SIZE_MAX ||
        choices_[i].interval.median_ns < choices_[leader].interval.median_ns) {
      leader = i;
    }
  }
  return leader;
}

double Race::PairedSlowdown(const Standing& a, const Standing& b) const {
  constexpr double kParts = 1e6;
  std::vector<int64_t> slowdowns;
  for (size_t round = 0; round < std::min(a.by_round_ns.size(), b.by_round_ns.size()); ++round) {
    const auto a_ns = static_cast<double>(a.by_round_ns[round]);
    const auto b_ns = static_cast<double>(b.by_round_ns[round]);
    if (a_ns > 0 && b_ns > 0) slowdowns.push_back(static_cast<int64_t>(a_ns / b_ns * kParts));
  }
  if (static_cast<int32_t>(slowdowns.size()) < rules_.min_rounds) return 0;
  return static_cast<double>(MedianWithInterval(slowdowns).low_ns) / kParts;
}

void Race::EliminateSlower(size_t leader) {
  const Standing& best = choices_[leader];
  const auto has_enough = [this](const Standing& choice) {
    return static_cast<int32_t>(choice.samples_ns.size()) >= rules_.min_rounds;
  };
  for (size_t i : Racing()) {
    Standing& choice = choices_[i];
    if (i == leader || choice.samples_ns.empty()) continue;
    const auto leader_ns = static_cast<double>(best.interval.median_ns);
    const bool is_cut =
        std::any_of(rules_.cuts.begin(), rules_.cuts.end(), [&](const EarlyCut& cut) {
          return counted_rounds() >= cut.round &&
                 static_cast<double>(choice.best_ns) > cut.factor * leader_ns;
        });
    // The default stays until its interval lies outside of the noise and beyond the leader's: where
    // they overlap it wins. Both intervals are of enough samples, since a later outlier would give
    // the default back what it had lost, with nobody left to measure.
    const bool is_default = i == default_index_;
    if (is_default && is_qualifying_) continue;
    const double margin = is_default       ? 1 + rules_.noise_percent / 100
                          : is_qualifying_ ? 1 + rules_.qualifying_margin_percent / 100
                                           : 1;
    double bar_ns = margin * leader_ns;
    if (is_default) bar_ns = std::max(bar_ns, static_cast<double>(best.interval.high_ns));
    const bool slower_alone = has_enough(best) && (!is_default || has_enough(choice)) &&
                              static_cast<double>(choice.interval.low_ns) > bar_ns;
    const double indifference = is_default || is_qualifying_ ? 0 : IndifferenceNow();
    const bool slower = slower_alone || PairedSlowdown(choice, best) > margin - indifference;
    // One sample may be a spike, in whichever round it was the first that counted.
    const bool has_two = choice.samples_ns.size() >= 2;
    const bool early = !is_default && has_two && is_cut;
    if (early || slower) choice.state = State::kEliminated;
  }
}

double Race::IndifferenceNow() const {
  double percent = 0;
  for (const Indifference& each : rules_.indifference) {
    if (counted_rounds() >= each.turns * rules_.min_rounds) percent = each.percent;
  }
  return percent / 100;
}

size_t Race::FastestUnchanged() const {
  size_t fastest = SIZE_MAX;
  for (const size_t i : Racing()) {
    if (choices_[i].changes_form || choices_[i].samples_ns.empty()) continue;
    const bool is_faster = fastest == SIZE_MAX ||
                           choices_[i].interval.median_ns < choices_[fastest].interval.median_ns;
    if (is_faster) fastest = i;
  }
  return fastest;
}

std::vector<size_t> Race::Limited() const {
  std::vector<size_t> limited = Racing();
  const size_t fastest_unchanged = FastestUnchanged();
  std::erase_if(limited, [&](size_t i) {
    if (!rules_.limits_all_forms) return !choices_[i].changes_form;
    return i == default_index_ || i == fastest_unchanged;
  });
  return limited;
}

void Race::EliminateBeyondLimit() {
  const FieldLimit* limit = nullptr;
  const auto begin = [this](const FieldLimit& each) { return each.turns * rules_.min_rounds; };
  for (const FieldLimit& each : rules_.limits) {
    if (rounds_ >= begin(each)) limit = &each;
  }
  const size_t leader = Leader();
  const bool has_rounds = counted_rounds() >= kRoundsBeforeLimits;
  if (limit == nullptr || leader == SIZE_MAX || !has_rounds) return;
  // A choice of few samples may be the fastest.
  const double enough = std::min<double>(begin(*limit), rules_.min_rounds);
  std::vector<std::pair<int64_t, size_t>> by_time;
  for (const size_t i : Limited()) {
    const bool has_enough = static_cast<double>(choices_[i].samples_ns.size()) >= enough;
    if (has_enough) by_time.emplace_back(choices_[i].interval.median_ns, i);
  }
  std::sort(by_time.begin(), by_time.end());
  // Short samples do not show which of two close choices is faster.
  const double margin = is_qualifying_ ? 1 + rules_.qualifying_margin_percent / 100 : 0;
  const double bar_ns = margin * static_cast<double>(choices_[leader].interval.median_ns);
  for (size_t at = limit->choices; at < by_time.size(); ++at) {
    const auto [median_ns, index] = by_time[at];
    if (static_cast<double>(median_ns) > bar_ns) choices_[index].state = State::kEliminated;
  }
}

bool Race::Decided() const {
  if (is_qualifying_ || rounds_ < rules_.min_rounds) return false;
  const size_t leader = Leader();
  if (leader == SIZE_MAX) return false;
  const MedianInterval& best = choices_[leader].interval;
  // Samples that did not count say nothing: a choice that lacks them may be the fastest.
  for (size_t i : Racing()) {
    if (static_cast<int32_t>(choices_[i].samples_ns.size()) < rules_.min_rounds) return false;
  }
  const double half_width_percent =
      50.0 * static_cast<double>(best.high_ns - best.low_ns) / static_cast<double>(best.median_ns);
  if (half_width_percent <= kLeaderIntervalPercent) return true;
  const std::vector<size_t> racing = Racing();
  const size_t to_beat = rules_.limits_all_forms ? FastestUnchanged() : default_index_;
  const bool is_by_default = std::all_of(racing.begin(), racing.end(), [&](size_t i) {
    return i == leader || i == default_index_ || i == to_beat;
  });
  const double rounds_by_default = rules_.turns_by_default * rules_.min_rounds;
  if (is_by_default && counted_rounds() >= rounds_by_default) return true;
  const double zone_ns = static_cast<double>(best.median_ns) * (1 + rules_.noise_percent / 100);
  bool all_in_zone = true;
  bool rival_left = false;
  for (size_t i : Racing()) {
    if (i == leader) continue;
    const MedianInterval& interval = choices_[i].interval;
    rival_left = true;
    if (static_cast<double>(interval.median_ns) > zone_ns) all_in_zone = false;
  }
  return !rival_left || all_in_zone;
}

}  // namespace cotune
