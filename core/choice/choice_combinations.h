// How the choices of a program's collectives combine, where these are not all one problem.
#ifndef COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_
#define COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"
#include "core/selection/verdict.h"

namespace cotune {

// Collectives that are the same problem run by the same choice. For the others there may be
// thousands of combinations. Then two races find a good one: in the first, one of the collectives
// at a time leaves its default, and the second combines what was fastest for each. Pure; equal on
// all ranks, as the lists and verdicts are.
class ChoiceCombinations {
 public:
  explicit ChoiceCombinations(size_t collectives) : collectives_(collectives) {}

  // `place` is that of the collective in the program; each is added once. The first returns false
  // where no collective that was added is the same problem.
  bool AddToEqual(const Problem& problem, size_t place);
  void Add(const Problem& problem, size_t place, std::vector<Choice> choices);

  // All combinations where they are 64 or fewer; else the default of each collective, and what
  // differs from that in one.
  std::vector<Choice> First() const;

  // What a second race adds: combinations of the fastest choices of each collective, 16 at most,
  // that have no verdict yet. A choice is judged by the verdict of the combination that leaves the
  // defaults for it alone; where none of a collective's has a time, by its place in the list.
  std::vector<Choice> Best(std::span<const Verdict> verdicts) const;

  // Any combination.
  std::optional<Choice> Find(const ChoiceId& id) const;

 private:
  // Collectives that are the same problem.
  struct Equal {
    Problem problem;
    std::vector<size_t> places;
    std::vector<Choice> choices;
    size_t default_index = 0;
  };
  using Pick = std::vector<size_t>;  // of each group, the position of its choice

  bool has_all_first() const;
  Pick Defaults() const;
  // All picks that take one of these positions for each group.
  static std::vector<Pick> Product(const std::vector<std::vector<size_t>>& positions);
  // The positions in a group's list of those that a second race combines.
  std::vector<size_t> Fastest(size_t group, std::span<const Verdict> verdicts, size_t count) const;
  Choice Combine(const Pick& pick) const;
  ChoiceId IdOf(const Pick& pick) const;

  size_t collectives_;
  std::vector<Equal> groups_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_CHOICE_COMBINATIONS_H_
