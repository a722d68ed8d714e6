#include "core/choice/choice_lists.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/choice/numerics.h"
#include "core/choice/recipe.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Combinations of the choices of different collectives that are tried; a race drops most of them
// after a few samples.
constexpr size_t kCombinationsMax = 64;

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

// The collectives of a program that are the same problem, and how that can run.
struct EqualCollectives {
  Problem problem;
  std::vector<size_t> places;  // among the collectives of the program
  std::vector<Choice> choices;
};

// The choice that runs each collective by the one of its group that `picked` names.
Choice Combine(const std::vector<EqualCollectives>& groups, const std::vector<size_t>& picked,
               size_t collectives) {
  std::vector<const Choice*> of_place(collectives);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const size_t place : groups[i].places) of_place[place] = &groups[i].choices[picked[i]];
  }
  std::vector<ChoiceId> ids;
  std::vector<std::string> classes;
  Choice combined = *of_place.front();
  combined.cost_us = 0;
  combined.workspace_bytes = 0;
  for (const Choice* each : of_place) {
    ids.push_back(each->id);
    classes.push_back(each->numerics);
    combined.is_default = combined.is_default && each->is_default;
    combined.is_capturable = combined.is_capturable && each->is_capturable;
    combined.is_reproducible = combined.is_reproducible && each->is_reproducible;
    combined.prepare_is_collective = combined.prepare_is_collective || each->prepare_is_collective;
    const bool has_costs = combined.cost_us >= 0 && each->cost_us >= 0;
    combined.cost_us = has_costs ? combined.cost_us + each->cost_us : -1;
    combined.workspace_bytes += each->workspace_bytes;
  }
  combined.id = ChoiceId::Join(ids);
  combined.numerics = JoinNumerics(classes);
  return combined;
}

// All combinations where they are few; else those that differ from the defaults in one group.
std::vector<std::vector<size_t>> Picks(const std::vector<EqualCollectives>& groups) {
  double all = 1;
  for (const EqualCollectives& group : groups) all *= static_cast<double>(group.choices.size());
  std::vector<std::vector<size_t>> picks;
  if (all <= static_cast<double>(kCombinationsMax)) {
    picks.emplace_back();
    for (const EqualCollectives& group : groups) {
      std::vector<std::vector<size_t>> longer;
      for (const std::vector<size_t>& pick : picks) {
        for (size_t i = 0; i < group.choices.size(); ++i) {
          longer.push_back(pick);
          longer.back().push_back(i);
        }
      }
      picks = std::move(longer);
    }
    return picks;
  }
  std::vector<size_t> defaults;
  for (const EqualCollectives& group : groups) {
    const auto found = std::find_if(group.choices.begin(), group.choices.end(),
                                    [](const Choice& choice) { return choice.is_default; });
    const auto at = found == group.choices.end() ? group.choices.begin() : found;
    defaults.push_back(static_cast<size_t>(at - group.choices.begin()));
  }
  picks.push_back(defaults);
  for (size_t group = 0; group < groups.size(); ++group) {
    for (size_t i = 0; i < groups[group].choices.size(); ++i) {
      if (i == defaults[group]) continue;
      picks.push_back(defaults);
      picks.back()[group] = i;
    }
  }
  return picks;
}

ChoiceList ListProgram(const std::vector<const Backend*>& backends, const ListingRules& rules,
                       const Program& program, const Problem& problem) {
  ChoiceList list;
  const ProgramGraph& graph = program.graph();
  if (graph.collectives().size() < graph.nodes().size() && !rules.has_parts) {
    list.refusals.push_back({"every choice",
                             "no backend that is loaded runs the local operations of programs on "
                             "this memory"});
    return list;
  }
  const uint64_t rows = program.RowsAt(problem);
  std::vector<EqualCollectives> groups;
  const std::vector<CollectiveStep> steps =
      CollectiveSteps(UnfusedRecipe(graph), program, rows, problem.topology_digest);
  for (size_t place = 0; place < steps.size(); ++place) {
    const Problem& each = steps[place].problem;
    if (!steps[place].why_plain.empty()) {
      list.refusals.push_back({fmt::format("registered buffers for collective {} ({})", place + 1,
                                           Name(each.cls.collective)),
                               steps[place].why_plain});
    }
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.problem == each; });
    if (known != groups.end()) {
      known->places.push_back(place);
      continue;
    }
    const Result<Program> single = Program::SingleCollective(each.cls);
    if (!single) {
      list.refusals.push_back({"every choice", single.error().ToText()});
      return list;
    }
    ChoiceList alone = ListSingle(backends, rules, *single, each);
    list.refusals.insert(list.refusals.end(), alone.refusals.begin(), alone.refusals.end());
    groups.push_back({each, {place}, std::move(alone.choices)});
  }
  for (const std::vector<size_t>& pick : Picks(groups)) {
    if (pick.size() < groups.size()) continue;
    list.choices.push_back(Combine(groups, pick, graph.collectives().size()));
  }
  return list;
}

}  // namespace

ChoiceList ListChoicesOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                         const Program& program, const Problem& problem) {
  return program.is_single_collective() ? ListSingle(backends, rules, program, problem)
                                        : ListProgram(backends, rules, program, problem);
}

ChoiceList ListChoicesOf(const BackendGroups& groups, const Program& program,
                         const Problem& problem) {
  std::vector<const Backend*> backends;
  for (const BackendMember& member : groups.members()) {
    if (member.group != nullptr) backends.push_back(member.backend);
  }
  const ListingRules rules{groups.program_support().part_backend != nullptr, groups.numerics()};
  ChoiceList list = ListChoicesOf(backends, rules, program, problem);
  list.refusals.insert(list.refusals.begin(), groups.refusals().begin(), groups.refusals().end());
  return list;
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
