#include "core/choice/choice_lists.h"

#include <utility>

#include "core/choice/choice_combinations.h"
#include "core/choice/numerics.h"
#include "core/choice/recipe.h"
#include "fmt/format.h"

namespace cotune {
namespace {

ChoiceList ListSingle(const std::vector<const Backend*>& backends, const ListingRules& rules,
                      const Program& program, const Problem& problem) {
  ChoiceList merged;
  bool has_default = false;
  for (const Backend* backend : backends) {
    ChoiceList list = backend->ListChoices(program, problem);
    for (Choice& choice : list.choices) {
      // One default for all: that of the first backend, in priority order, that has one.
      choice.is_default = choice.is_default && !has_default;
      has_default = has_default || choice.is_default;
      merged.choices.push_back(std::move(choice));
    }
    merged.refusals.insert(merged.refusals.end(), list.refusals.begin(), list.refusals.end());
  }
  if (rules.numerics == NumericsRule::kSame) KeepOneNumerics(merged);
  return merged;
}

// Collects what can run each collective of a program; the list that it gives has refusals only.
ListedChoices ChoicesOfCollectives(const std::vector<const Backend*>& backends,
                                   const ListingRules& rules, const Program& program,
                                   const Problem& problem) {
  const ProgramGraph& graph = program.graph();
  ListedChoices made{{}, ChoiceCombinations(graph.collectives().size())};
  const auto refuse_all = [&](std::string reason) {
    return ListedChoices{{{}, {{"every choice", std::move(reason)}}}, ChoiceCombinations(0)};
  };
  if (graph.collectives().size() < graph.nodes().size() && !rules.has_parts) {
    return refuse_all(
        "no backend that is loaded runs the local operations of programs on this memory");
  }
  const uint64_t rows = program.RowsAt(problem);
  const std::vector<CollectiveStep> steps =
      CollectiveSteps(UnfusedRecipe(graph), program, rows, problem.topology_digest);
  for (size_t place = 0; place < steps.size(); ++place) {
    const Problem& each = steps[place].problem;
    if (!steps[place].why_plain.empty()) {
      made.list.refusals.push_back({fmt::format("registered buffers for collective {} ({})",
                                                place + 1, Name(each.cls.collective)),
                                    steps[place].why_plain});
    }
    if (made.combinations.AddToEqual(each, place)) continue;
    const Result<Program> single = Program::SingleCollective(each.cls);
    if (!single) return refuse_all(single.error().ToText());
    ChoiceList alone = ListSingle(backends, rules, *single, each);
    made.list.refusals.insert(made.list.refusals.end(), alone.refusals.begin(),
                              alone.refusals.end());
    made.combinations.Add(each, place, std::move(alone.choices));
  }
  return made;
}

ListedChoices ListOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                     const Program& program, const Problem& problem) {
  if (program.is_single_collective()) {
    return {ListSingle(backends, rules, program, problem), ChoiceCombinations(0)};
  }
  ListedChoices listed = ChoicesOfCollectives(backends, rules, program, problem);
  listed.list.choices = listed.combinations.First();
  return listed;
}

std::vector<const Backend*> BackendsInUse(const BackendGroups& groups) {
  std::vector<const Backend*> backends;
  for (const BackendMember& member : groups.members()) {
    if (member.group != nullptr) backends.push_back(member.backend);
  }
  return backends;
}

ListingRules RulesOf(const BackendGroups& groups) {
  return {groups.program_support().part_backend != nullptr, groups.numerics()};
}

}  // namespace

ChoiceList ListChoicesOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                         const Program& program, const Problem& problem) {
  return ListOf(backends, rules, program, problem).list;
}

ListedChoices ListWithCombinations(const BackendGroups& groups, const Program& program,
                                   const Problem& problem) {
  ListedChoices listed = ListOf(BackendsInUse(groups), RulesOf(groups), program, problem);
  std::vector<Refusal>& refusals = listed.list.refusals;
  refusals.insert(refusals.begin(), groups.refusals().begin(), groups.refusals().end());
  return listed;
}

ChoiceList ListChoicesOf(const BackendGroups& groups, const Program& program,
                         const Problem& problem) {
  return ListWithCombinations(groups, program, problem).list;
}

std::optional<Choice> FindChoice(const BackendGroups& groups, const Program& program,
                                 const Problem& problem, const ChoiceId& id) {
  const std::vector<const Backend*> backends = BackendsInUse(groups);
  const ListingRules rules = RulesOf(groups);
  if (!program.is_single_collective()) {
    return ChoicesOfCollectives(backends, rules, program, problem).combinations.Find(id);
  }
  for (Choice& choice : ListSingle(backends, rules, program, problem).choices) {
    if (choice.id == id) return std::move(choice);
  }
  return std::nullopt;
}

Result<std::unique_ptr<ChoiceCaller>> MakeCaller(BackendGroups& groups, const Program& program,
                                                 const Problem& problem, const Choice& choice) {
  const std::vector<ChoiceId> steps =
      choice.id.StepsFor(program.is_single_collective() ? 1 : program.graph().collectives().size());
  if (steps.empty()) {
    return Fail(ErrorCode::kUnsupported, "it names another number of collectives",
                choice.id.text());
  }
  std::vector<BackendMember*> members;
  for (const ChoiceId& step : steps) {
    BackendMember* member = groups.Find(step.backend());
    if (member == nullptr || member->group == nullptr) {
      return Fail(ErrorCode::kUnsupported, "its backend is not in use here", step.text());
    }
    members.push_back(member);
  }
  return std::make_unique<ChoiceCaller>(program, problem, choice, std::move(members),
                                        groups.program_support());
}

}  // namespace cotune
