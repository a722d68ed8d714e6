// The race of one cell's choices: which to measure next, which to drop, when to stop. Pure: every
// rank feeds it the same times and so reaches the same decisions.
#ifndef COTUNE_CORE_BENCHMARK_RACE_H_
#define COTUNE_CORE_BENCHMARK_RACE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/selection/select_winner.h"

namespace cotune {

// From a round on, eliminates a choice with at least two samples, the best of which is over
// `factor` x the median of the leader.
struct EarlyCut {
  int32_t round;
  double factor;
};

// After `turns` x min_rounds rounds, eliminates all but so many of the choices that are limited,
// the slower ones by their medians. Many of them differ by less than the noise, and would race to
// the last round otherwise.
struct FieldLimit {
  double turns;
  size_t choices;
};

// After `turns` x min_rounds rounds, eliminates a choice, the default excepted, whose time by the
// leader's of the same rounds has its 99 % interval above 1 less `percent`: it can hardly be faster
// by more. The more rounds there were, the less one more of them shows about choices that tie.
struct Indifference {
  double turns;
  double percent;
};

struct RaceRules {
  int32_t min_rounds = 8;  // of a choice that is not eliminated; a 99 % interval needs 8
  int32_t max_rounds = 50;
  double noise_percent = 2.0;  // survivors all within it of the leader: nothing left to learn
  // Ascending. These are for cores that do other things, too: two of three samples may be spikes.
  std::vector<EarlyCut> cuts = {{2, 3.0}, {5, 1.25}};
  std::vector<FieldLimit> limits = {{0.5, 10}, {1, 5}, {2, 3}, {4, 2}};  // ascending
  // The limits are for the choices of all forms, but the default and the fastest choice of the
  // unchanged form, which the others have to beat. False: they are for rewritten and fused forms.
  bool limits_all_forms = false;
  // So many rounds have short samples, which tell choices apart that differ much; 0: none.
  int32_t qualifying_rounds = 0;
  // The race ends with these rounds: another one has samples of full length.
  bool only_qualifies = false;
  // So many choices qualify at most, those with the best samples; the default does so in any case.
  size_t qualified_max = std::numeric_limits<size_t>::max();
  // These rounds eliminate only a choice whose interval lies so far above the leader, and the
  // limits only one whose median does: the time of a call in a short sample may differ by a few
  // percent from that in a longer one.
  double qualifying_margin_percent = 5.0;
  std::vector<Indifference> indifference = {};  // ascending
  // After so many x min_rounds rounds, the race ends if the leader and those that it has to beat
  // alone are left, which are the default and, with limits_all_forms, the fastest choice of the
  // unchanged form. Either wins unless the samples show that it is slower, and most of those to
  // come would show no more than these. Infinite: the race goes on.
  double turns_by_default = std::numeric_limits<double>::infinity();
};

// Rounds are interleaved: each visits every survivor once, with a rotating start, so that drift
// hits all alike.
//   round 1     eliminates no choice: one sample may be a spike
//   cuts        eliminate choices that are far behind
//   min_rounds  samples of the leader: eliminates a choice whose 99 % interval lies above the
//               leader's median, or which is slower than the leader in the same rounds: what slows
//               a round slows both (PairedSlowdown)
//   limits      eliminate the slowest of many that are left, by the medians of their samples so far
// The rounds of short samples come first, and neither eliminate the default nor end the race. Their
// samples are discarded if those that follow have more calls: only these are compared in the end.
// It ends when every survivor has min_rounds valid samples and one choice is left, all survivors
// are within the noise of the leader, or the leader's interval is within 1 %; after
// turns_by_default; and at max_rounds.
// The default choice always races for min_rounds valid samples.
class Race {
 public:
  // default_index: SIZE_MAX when the default choice does not take part.
  Race(size_t choice_count, size_t default_index, const RaceRules& rules);

  // The choices of the next round in order; empty when the race is over.
  std::vector<size_t> NextRound() const;
  // One time for each choice of NextRound(), in its order; 0: this sample was not valid.
  void AddRound(const std::vector<int64_t>& times_ns) { AddRound(NextRound(), times_ns); }
  // The same for the order that NextRound() gave before some were disqualified.
  void AddRound(const std::vector<size_t>& order, const std::vector<int64_t>& times_ns);
  // Tells that the choice is one of a rewritten or fused form, for rules.limits.
  void SetChangesForm(size_t index);
  // Returns true if the samples of the next round are to be short.
  bool is_qualifying() const { return is_qualifying_; }
  // Returns true if there have been enough rounds of short samples.
  bool HasQualified() const;
  // Eliminates the slowest choices if more than rules.qualified_max are left after the rounds of
  // short samples.
  void EliminateUnqualified();
  // Ends the rounds of short samples. Discards the samples of all choices that still race if those
  // to come have more calls.
  void EndQualifying(bool discards_samples);
  // Discards the samples of a choice, because its next ones are taken in another way.
  void ClearSamples(size_t index);
  // Takes a choice out for good: it failed.
  void Disqualify(size_t index);
  // Ends the race now: the budget is used up.
  void Stop() { stopped_ = true; }

  bool is_over() const { return NextRound().empty(); }
  bool is_racing(size_t index) const { return choices_[index].state == State::kRacing; }
  bool is_eliminated(size_t index) const { return choices_[index].state == State::kEliminated; }
  const std::vector<int64_t>& samples_ns(size_t index) const { return choices_[index].samples_ns; }
  int32_t rounds() const { return rounds_; }
  // Number of rounds since samples were discarded at the end of qualifying.
  int32_t counted_rounds() const { return rounds_ - first_round_; }

 private:
  enum class State { kRacing, kEliminated, kDisqualified };
  // One choice in the race.
  struct Standing {
    State state = State::kRacing;
    bool changes_form = false;
    std::vector<int64_t> samples_ns;
    std::vector<int64_t> by_round_ns;  // 0: no valid sample in that round
    int64_t best_ns = INT64_MAX;
    MedianInterval interval;
  };

  std::vector<size_t> Racing() const;
  // Racing choice with the smallest median; SIZE_MAX when none has a sample.
  size_t Leader() const;
  void EliminateSlower(size_t leader);
  // As a share of the leader's time, in this round.
  double IndifferenceNow() const;
  void EliminateBeyondLimit();
  // The choices that rules.limits bound.
  std::vector<size_t> Limited() const;
  // The racing choice of the unchanged form with the smallest median; SIZE_MAX when none has a
  // sample.
  size_t FastestUnchanged() const;
  // The low end of the 99 % interval of the median over rounds of a's time by b's; 0 with fewer
  // than min_rounds rounds in which both have a sample.
  double PairedSlowdown(const Standing& a, const Standing& b) const;
  bool Decided() const;

  std::vector<Standing> choices_;
  size_t default_index_;
  RaceRules rules_;
  int32_t rounds_ = 0;
  int32_t first_round_ = 0;  // that still has samples
  bool is_qualifying_;
  bool stopped_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RACE_H_
