// How the choices of a program's collectives combine, where these are not all one problem.
#ifndef COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_
#define COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"
#include "core/selection/verdict.h"

namespace cotune {

// Choices of a heat, at most, of which it drops most after a few samples.
inline constexpr size_t kHeatChoicesMax = 64;

// Collectives that are the same problem, and around which the same local operations can be fused,
// run by the same choice. Different collectives may have thousands of combinations of their
// choices. Then two races find a good one: in the first, one of the collectives at a time leaves
// its default, and the second combines the fastest choices of each. Choices in regions, and in a
// rewritten form those without a region, too, begin with the leading choice of each family
// (leading_choices.h). The second race has the others of the families that were fast. Pure; equal
// on all ranks, as the lists and verdicts are.
class ChoiceCombinations {
 public:
  enum class Form { kUnchanged, kRewritten };
  explicit ChoiceCombinations(size_t collectives, Form form = Form::kUnchanged)
      : collectives_(collectives), form_(form) {}

  // Each collective is added once, by its place in the program. `surroundings` is a text of the
  // regions. AddToEqual returns false, and adds nothing, where no collective that was added before
  // is the same problem in the same surroundings; then Add takes it with its choices.
  bool AddToEqual(const Problem& problem, const std::string& surroundings, size_t place);
  void Add(const Problem& problem, std::string surroundings, size_t place,
           std::vector<Choice> choices);

  // All combinations of collectives by themselves if they are 64 or fewer, or 16 of a rewritten
  // form, or if only one problem has several choices; else the default of each collective, and the
  // combinations that differ from that in one. Choices in regions follow, one at a time among
  // defaults.
  std::vector<Choice> First() const;
  // Returns whether First() has all of them, so that there is no second race.
  bool has_all_first() const;
  // How many combinations a second race adds at most.
  size_t best_max() const;

  // A second race adds these: combinations of the fastest choices of each collective, 16 at most,
  // that have no verdict yet. A choice is judged by the verdict of the combination that leaves the
  // defaults for it alone. In a rewritten form, and beside regions, a choice counts if it may be
  // the fastest of its collective: its interval begins at or below the median of the fastest. Where
  // none of a collective's has a time, because the default of another one fails, the first of its
  // list that have raced count. The other choices of the fastest families follow, one at a time in
  // the combination of the fastest.
  std::vector<Choice> Best(std::span<const Verdict> verdicts) const;

  // Lists the choices that First() leaves to the second race and that have no verdict in any
  // combination, among the defaults of the other collectives.
  std::vector<ChoiceId> SetAside(std::span<const Verdict> verdicts) const;

  // Guesses the time of the fastest combination: the time of the defaults, less what the fastest
  // choice of each collective saves among them, if it saves more than the noise: its interval ends
  // below the median of the defaults. INT64_MAX if the defaults have no time.
  int64_t GuessBestNs(std::span<const Verdict> verdicts) const;

  // Finds any combination, also one that is in neither race; nothing for another id.
  std::optional<Choice> Find(const ChoiceId& id) const;

 private:
  // Collectives that are the same problem.
  struct Equal {
    Problem problem;
    std::string surroundings;
    std::vector<size_t> places;
    std::vector<Choice> choices;
    size_t bare_choices = 0;  // Number of choices without a region, which come first.
    size_t default_index = 0;
    std::vector<bool> is_first{};  // the choices that First() has

    size_t first_bare_choices() const;
  };
  using Pick = std::vector<size_t>;  // of each group, the position of its choice

  // The groups that share out the combinations of the second race: one with a single choice takes
  // no part of them.
  size_t groups_with_several() const;
  // Returns whether there is no combination: no backend runs one of the collectives by itself, and
  // nothing replaces that, because it is part of the default.
  bool is_empty() const;
  bool has_all_bare_first() const;
  bool has_regions() const;
  // The number of choices of each group that the second race combines.
  size_t choices_of_each() const;
  Pick Defaults() const;
  // All picks that take one of these positions for each group.
  static std::vector<Pick> Product(const std::vector<std::vector<size_t>>& positions);
  // The positions in a group's list of those that a second race may combine, the fastest first.
  std::vector<size_t> Fastest(size_t group, std::span<const Verdict> verdicts) const;
  // Keeps those of the fastest choices of a group whose intervals do not lie above the median of
  // the first one.
  void KeepLevel(size_t group, std::span<const Verdict> verdicts,
                 std::vector<size_t>& fastest) const;
  // The verdict by which a choice of a group is judged; nullptr if there is none.
  const Verdict* VerdictOf(size_t group, size_t choice, std::span<const Verdict> verdicts) const;
  // The positions in a group's list of those that First() leaves out and whose family is that of
  // `fastest`, of the fastest choice with a region, or of a leading choice without a time.
  std::vector<size_t> OthersOfFamilies(size_t group, std::span<const Verdict> verdicts,
                                       size_t fastest) const;
  Choice Combine(const Pick& pick) const;
  ChoiceId IdOf(const Pick& pick) const;

  size_t collectives_;
  Form form_;
  std::vector<Equal> groups_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_
