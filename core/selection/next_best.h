// The choices that are tried, in turn, for a call that the winner of its size does not run: its
// backend refuses the call, no backend offers the winner, or the winner is not listed for a call of
// this size and one of these choices is.
#ifndef COTUNE_CORE_SELECTION_NEXT_BEST_H_
#define COTUNE_CORE_SELECTION_NEXT_BEST_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/problem/choice_id.h"

namespace cotune {

// An immutable list of choices, the fastest first (Winner::next_best). Copies share it, because
// thousands of measured sizes have one of a few lists. Any thread.
class NextBest {
 public:
  NextBest() = default;  // empty
  explicit NextBest(std::vector<ChoiceId> choices) {
    if (choices.empty()) return;
    choices_ = std::make_shared<const std::vector<ChoiceId>>(std::move(choices));
  }

  bool empty() const { return choices_ == nullptr; }
  const std::vector<ChoiceId>& choices() const {
    static const std::vector<ChoiceId> none;
    return choices_ == nullptr ? none : *choices_;
  }
  // Compares the choices, not who shares them.
  bool operator==(const NextBest& other) const {
    return choices_ == other.choices_ || choices() == other.choices();
  }

 private:
  std::shared_ptr<const std::vector<ChoiceId>> choices_;  // nullptr or not empty
};

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_NEXT_BEST_H_
