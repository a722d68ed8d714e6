#include "core/choice/forced_collectives.h"

#include <algorithm>

#include "core/choice/choice_lists.h"

namespace cotune {
namespace {

bool IsListed(const BackendGroups& groups, Problem problem, const ChoiceId& id) {
  const auto has_it = [&] {
    const Result<Program> single = Program::SingleCollective(problem.cls);
    return single && FindChoice(groups, *single, problem, id).has_value();
  };
  if (has_it()) return true;
  // Registered buffers are plain ones, too.
  if (problem.cls.buffer_class == BufferClass::kPlain) return false;
  problem.cls.buffer_class = BufferClass::kPlain;
  return has_it();
}

}  // namespace

std::vector<Problem> CollectivesOf(const Program& program, const Problem& anchor) {
  if (program.is_single_collective()) return {anchor};
  const uint64_t rows = program.RowsAt(anchor);
  std::vector<Problem> problems;
  for (const size_t node : program.graph().collectives()) {
    problems.push_back(program.ProblemOf(node, rows, anchor.topology_digest));
  }
  return problems;
}

std::optional<std::string> WhyNotListed(const ChoiceList& list, const ChoiceId& id) {
  const bool is_listed = std::any_of(list.choices.begin(), list.choices.end(),
                                     [&](const Choice& choice) { return choice.id == id; });
  if (is_listed) return std::nullopt;
  const Refusal* of_backend = nullptr;
  for (const Refusal& refusal : list.refusals) {
    if (refusal.choice == id.text()) return refusal.reason;
    if (refusal.choice == id.backend()) of_backend = &refusal;
  }
  return of_backend != nullptr ? of_backend->reason
                               : "its backend does not list it for such a call";
}

bool AreAllForced(const BackendGroups& groups, const ForcedChoices& forced, const Program& program,
                  const Problem& anchor) {
  if (forced.empty()) return false;
  const std::vector<Problem> collectives = CollectivesOf(program, anchor);
  return std::all_of(collectives.begin(), collectives.end(), [&](const Problem& each) {
    const ChoiceId* const id = forced.Find(each.cls.collective);
    return id != nullptr && IsListed(groups, each, *id);
  });
}

}  // namespace cotune
