// The choices of a program over all of its forms.
#ifndef COTUNE_CORE_CHOICE_FORM_CHOICES_H_
#define COTUNE_CORE_CHOICE_FORM_CHOICES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/choice/choice_combinations.h"

namespace cotune {

// Choices of all forms race in the same heats. The first heat has the first choices of each form,
// and the second heat combines the choices of the form that was the fastest. Only the first form,
// which is the program as it is, has a default choice. Pure; equal on all ranks.
class FormChoices {
 public:
  // In the order of the forms. `via` is that of the form; its ids have it in each step.
  void Add(std::string via, ChoiceCombinations combinations);

  // As the functions of ChoiceCombinations.
  std::vector<Choice> First() const;
  size_t best_max() const;
  std::vector<Choice> Best(std::span<const Verdict> verdicts) const;
  std::optional<Choice> Find(const ChoiceId& id) const;

 private:
  struct OfForm {
    std::string via;
    ChoiceCombinations combinations;
  };
  static Choice Named(Choice choice, const OfForm& form);

  std::vector<OfForm> forms_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_FORM_CHOICES_H_
