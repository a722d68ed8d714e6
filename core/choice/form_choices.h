// The choices of a program over all of its forms.
#ifndef COTUNE_CORE_CHOICE_FORM_CHOICES_H_
#define COTUNE_CORE_CHOICE_FORM_CHOICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/choice/choice_combinations.h"

namespace cotune {

// Choices of all forms race in the same heats. The first heat has the first choices of each form,
// and the second heat combines the choices of the form that was the fastest. It combines those of a
// slower form, too, if that may then be faster (ChoiceCombinations::GuessBestNs): the first heat
// has one region at a time, and a bucket may be faster than a program with one region, but slower
// than the program with a region for each of its collectives. Only the first form, which is the
// program as it is, has a default choice. Pure; equal on all ranks.
//
// A heat has kHeatChoicesMax choices. The choices that run every collective of the program by
// itself all race, even if they are more. Regions and other forms get the rest of the room, in
// their order, and each form has at least its first choice. The backends of a form take turns, so
// that none fills the room alone. If a form whose choices were left out is the fastest, the second
// heat has them.
class FormChoices {
 public:
  // Adds a form; the order of calls is that of the forms. `via` is that of the form; its ids have
  // it in each step.
  void Add(std::string via, ChoiceCombinations combinations);

  // Leaves out the combinations that is_possible refuses, of those with a key of the host. Called
  // after the last Add.
  void KeepPossible(std::function<bool(const Choice&)> is_possible);

  // The numerics class of the choice that runs when nothing is tuned; "" if there is none.
  std::string default_numerics() const;

  struct FirstHeat {
    std::vector<Choice> choices;
    std::vector<ChoiceId> left_out;  // there was no room for them
  };
  FirstHeat First() const;
  // They do what the functions of ChoiceCombinations do.
  size_t best_max() const;
  std::vector<Choice> Best(std::span<const Verdict> verdicts) const;
  std::vector<ChoiceId> SetAside(std::span<const Verdict> verdicts) const;
  std::optional<Choice> Find(const ChoiceId& id) const;

 private:
  struct OfForm {
    std::string via;
    ChoiceCombinations combinations;
  };
  // A form with its verdicts by the ids that its combinations know.
  struct RacedForm {
    const OfForm* form = nullptr;
    std::vector<Verdict> verdicts;
    int64_t fastest_ns = INT64_MAX;  // the fastest choice that stayed in the race, if any did
  };
  static Choice Named(Choice choice, const OfForm& form);
  // All forms, the fastest one first.
  std::vector<RacedForm> RacedForms(std::span<const Verdict> verdicts) const;
  bool IsPossible(const Choice& choice) const {
    return !choice.id.has_host_keys() || !is_possible_ || is_possible_(choice);
  }
  // `choices` of a form by their ids among those of all forms, without those that are not possible.
  std::vector<Choice> NamedAndPossible(std::vector<Choice> choices, const OfForm& form) const;

  std::vector<OfForm> forms_;
  std::function<bool(const Choice&)> is_possible_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_FORM_CHOICES_H_
