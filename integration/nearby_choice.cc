#include "integration/nearby_choice.h"

#include <utility>

#include "core/choice/choice_lists.h"

namespace cotune {

std::optional<Problem> AtMeasuredSize(const DispatchTable& table, const Program& program,
                                      const Problem& problem) {
  const NextBestOfSize* size = table.MeasuredSizeOf(DispatchKey::Of(problem.cls), problem.bytes());
  if (size == nullptr) return std::nullopt;
  Problem measured = problem;
  measured.count = program.is_single_collective()
                       ? CountForBytes(problem.cls, size->bytes)
                       : program.ProblemAt(size->bytes, problem.topology_digest).count;
  return measured.count == 0 ? std::nullopt : std::optional(measured);
}

std::optional<NearbyChoice> FindNearby(const BackendGroups& groups, const Program& program,
                                       const Problem& problem,
                                       const std::optional<Problem>& measured, const ChoiceId& id) {
  if (std::optional<Choice> here = FindChoice(groups, program, problem, id)) {
    return NearbyChoice{*std::move(here), true};
  }
  if (!measured || measured->count == problem.count) return std::nullopt;
  if (ListedRefusal(groups, program, problem, id)) return std::nullopt;
  std::optional<Choice> there = FindChoice(groups, program, *measured, id);
  if (!there) return std::nullopt;
  return NearbyChoice{*std::move(there), false};
}

std::optional<std::string> ListedRefusal(const BackendGroups& groups, const Program& program,
                                         const Problem& problem, const ChoiceId& id) {
  for (const Refusal& refusal : ListChoicesOf(groups, program, problem).refusals) {
    if (refusal.choice == id.text()) return refusal.reason;
  }
  return std::nullopt;
}

}  // namespace cotune
