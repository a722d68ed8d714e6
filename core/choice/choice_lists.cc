#include "core/choice/choice_lists.h"

#include <utility>

#include "core/base/check.h"
#include "core/choice/numerics.h"
#include "core/recipe/recipe_source.h"
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

// The list of a program that no backend can run.
ListedChoices RefuseAll(std::string reason) {
  return {{{}, {{"every choice", std::move(reason)}}}, {}};
}

// Collects the choices of each backend step of a form. Returns the combinations of these, and adds
// refusals.
Result<ChoiceCombinations> ChoicesOfForm(const std::vector<const Backend*>& backends,
                                         const ListingRules& rules, const Program& program,
                                         const Problem& problem, const Form& form,
                                         std::vector<Refusal>& refusals) {
  COTUNE_TRY(const std::vector<BackendCall> calls,
             BackendCalls(form.recipe, program, program.RowsAt(problem), problem.topology_digest));
  ChoiceCombinations combinations(calls.size());
  for (size_t place = 0; place < calls.size(); ++place) {
    const Problem& each = calls[place].problem;
    if (!calls[place].why_plain.empty()) {
      refusals.push_back({fmt::format("registered buffers for collective {} ({})", place + 1,
                                      Name(each.cls.collective)),
                          calls[place].why_plain});
    }
    if (combinations.AddToEqual(each, place)) continue;
    COTUNE_TRY(const Program single, Program::SingleCollective(each.cls));
    ChoiceList alone = ListSingle(backends, rules, single, each);
    refusals.insert(refusals.end(), alone.refusals.begin(), alone.refusals.end());
    combinations.Add(each, place, std::move(alone.choices));
  }
  return combinations;
}

// The choices of a program with several steps; the list that it gives has refusals only.
ListedChoices ChoicesOfForms(const std::vector<const Backend*>& backends, const ListingRules& rules,
                             const Program& program, const Problem& problem) {
  const ProgramGraph& graph = program.graph();
  if (graph.collectives().size() < graph.nodes().size() && !rules.has_parts) {
    return RefuseAll(
        "no backend that is loaded runs the local operations of programs on this memory");
  }
  COTUNE_CHECK(rules.recipes != nullptr, "a program with several steps has recipes");
  ListedChoices made;
  for (const Form& form : rules.recipes->Forms(program, program.RowsAt(problem))) {
    std::vector<Refusal> refusals;
    Result<ChoiceCombinations> combinations =
        ChoicesOfForm(backends, rules, program, problem, form, refusals);
    if (!combinations) return RefuseAll(combinations.error().ToText());
    // The same backends refuse the same collectives of other forms.
    if (form.via.empty()) made.list.refusals = std::move(refusals);
    made.combinations.Add(form.via, *std::move(combinations));
  }
  return made;
}

ListedChoices ListOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                     const Program& program, const Problem& problem) {
  if (program.is_single_collective()) {
    return {ListSingle(backends, rules, program, problem), {}};
  }
  ListedChoices listed = ChoicesOfForms(backends, rules, program, problem);
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
  const ProgramSupport& support = groups.program_support();
  return {support.part_backend != nullptr, groups.numerics(), support.recipes};
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
    return ChoicesOfForms(backends, rules, program, problem).combinations.Find(id);
  }
  for (Choice& choice : ListSingle(backends, rules, program, problem).choices) {
    if (choice.id == id) return std::move(choice);
  }
  return std::nullopt;
}

Result<std::unique_ptr<ChoiceCaller>> MakeCaller(BackendGroups& groups, const Program& program,
                                                 const Problem& problem, const Choice& choice) {
  size_t count = 1;
  if (!program.is_single_collective()) {
    const RecipeSource* const recipes = groups.program_support().recipes;
    COTUNE_CHECK(recipes != nullptr, "a program with several steps has recipes");
    COTUNE_TRY(const Recipe recipe, recipes->RecipeOf(program.graph(), choice.id));
    count = recipe.backend_steps().size();
  }
  const std::vector<ChoiceId> steps = choice.id.StepsFor(count);
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
