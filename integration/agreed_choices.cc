#include "integration/agreed_choices.h"

namespace cotune {

void AgreedChoices::Add(const ProblemClass& cls, uint64_t count, Choice choice) {
  if (Find(cls, count)) return;
  choices_.emplace(std::pair(cls, count), std::move(choice));
}

void AgreedChoices::AddAllCounts(const ProblemClass& cls, ChoiceOfCount choice_of) {
  all_counts_.emplace(cls, std::move(choice_of));
}

std::optional<AgreedChoices::Choice> AgreedChoices::Find(const ProblemClass& cls,
                                                         uint64_t count) const {
  const auto exact = choices_.find({cls, count});
  if (exact != choices_.end()) return exact->second;
  const auto all = all_counts_.find(cls);
  if (all != all_counts_.end()) return all->second(count);
  return std::nullopt;
}

}  // namespace cotune
