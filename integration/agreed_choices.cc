#include "integration/agreed_choices.h"

namespace cotune {

void AgreedChoices::Add(const ProblemClass& cls, uint64_t count, Candidates candidates) {
  if (Find(cls, count)) return;
  choices_.emplace(std::pair(cls, count), std::move(candidates));
}

void AgreedChoices::AddAllCounts(const ProblemClass& cls, uint64_t owner,
                                 CandidatesOfCount candidates_of) {
  const auto found = all_counts_.find(cls);
  if (found == all_counts_.end()) {
    all_counts_.emplace(cls, AllCounts{owner, std::move(candidates_of)});
  } else if (found->second.owner == owner) {
    found->second.candidates_of = std::move(candidates_of);
  }
}

std::optional<AgreedChoices::Candidates> AgreedChoices::Find(const ProblemClass& cls,
                                                             uint64_t count) const {
  const auto exact = choices_.find({cls, count});
  if (exact != choices_.end()) return exact->second;
  const auto all = all_counts_.find(cls);
  if (all != all_counts_.end()) return all->second.candidates_of(count);
  return std::nullopt;
}

}  // namespace cotune
