#include "integration/agreed_choices.h"

namespace cotune {
namespace {

constexpr size_t kComputedMax = 4096;

}  // namespace

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
    found->second = {owner, std::move(candidates_of)};
  }
}

std::optional<AgreedChoices::Candidates> AgreedChoices::Find(const ProblemClass& cls,
                                                             uint64_t count) const {
  const auto exact = choices_.find({cls, count});
  if (exact != choices_.end()) return exact->second;
  const auto found = all_counts_.find(cls);
  if (found == all_counts_.end()) return std::nullopt;
  const AllCounts& all = found->second;
  const auto known = all.computed.find(count);
  if (known != all.computed.end()) return known->second;
  if (all.computed.size() == kComputedMax) all.computed.clear();
  return all.computed.emplace(count, all.candidates_of(count)).first->second;
}

void AgreedChoices::ForgetComputed() {
  for (auto& [cls, all] : all_counts_) all.computed.clear();
}

}  // namespace cotune
