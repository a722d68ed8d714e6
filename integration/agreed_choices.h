// The choices of collectives that all ranks of a group have agreed on.
#ifndef COTUNE_INTEGRATION_AGREED_CHOICES_H_
#define COTUNE_INTEGRATION_AGREED_CHOICES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/problem/choice_id.h"
#include "core/problem/problem.h"

namespace cotune {

// Maps a collective with its count to the choice that runs it, in whatever program it stands. An
// entry never changes, because a captured graph may hold it. Every rank adds the same entries in
// the same order. One thread at a time uses it.
class AgreedChoices {
 public:
  // The choice for a count; nothing: the default.
  using Choice = std::optional<ChoiceId>;
  using ChoiceOfCount = std::function<Choice(uint64_t count)>;

  // Agrees on the choice of one count, unless there is one.
  void Add(const ProblemClass& cls, uint64_t count, Choice choice);
  // Agrees on the choices of all counts that have none, unless that was done before.
  void AddAllCounts(const ProblemClass& cls, ChoiceOfCount choice_of);
  // The outer optional is empty if nothing is agreed.
  std::optional<Choice> Find(const ProblemClass& cls, uint64_t count) const;
  bool empty() const { return choices_.empty() && all_counts_.empty(); }

 private:
  std::map<std::pair<ProblemClass, uint64_t>, Choice> choices_;
  std::map<ProblemClass, ChoiceOfCount> all_counts_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_AGREED_CHOICES_H_
