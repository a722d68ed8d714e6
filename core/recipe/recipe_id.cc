#include "core/recipe/recipe_id.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

Result<std::vector<ChoiceId>> ChoicesFor(size_t backend_steps, const ChoiceId& id) {
  std::vector<ChoiceId> steps = id.StepsFor(backend_steps);
  if (!steps.empty()) return steps;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("it names the choices of {} steps, and the program has {} in this form",
                          id.steps().size(), backend_steps),
              id.text());
}

// The collective from which each node's distance counts. If there is one alone, a distance may name
// any local operation: whether it may run with the collective is judged later, with a reason.
std::vector<std::optional<size_t>> OwnersOf(const ProgramGraph& graph,
                                            const std::vector<size_t>& collectives) {
  if (collectives.size() > 1) return OwnCollectives(graph, collectives);
  return std::vector<std::optional<size_t>>(graph.nodes().size(), collectives.front());
}

// The distances that a key `fuse` names; nothing if it is no list of numbers.
std::optional<std::set<std::ptrdiff_t>> DistancesIn(std::string_view text) {
  std::set<std::ptrdiff_t> distances;
  while (true) {
    const std::string_view first = text.substr(0, text.find('.'));
    std::ptrdiff_t distance = 0;
    const char* const end = first.data() + first.size();
    const auto [stop, error] = std::from_chars(first.data(), end, distance);
    if (error != std::errc() || stop != end) return std::nullopt;
    distances.insert(distance);
    if (first.size() == text.size()) return distances;
    text.remove_prefix(first.size() + 1);
  }
}

std::ptrdiff_t Distance(size_t node, size_t collective) {
  return static_cast<std::ptrdiff_t>(node) - static_cast<std::ptrdiff_t>(collective);
}

Result<Region> RegionOf(const ProgramGraph& graph, const std::vector<size_t>& collectives,
                        const ChoiceId& step) {
  const std::string text = step.HostKey(kFuseKey);
  Region region{collectives};
  if (text.empty()) return region;
  const std::optional<std::set<std::ptrdiff_t>> distances = DistancesIn(text);
  const auto fail = [&](std::string_view why) {
    return Fail(ErrorCode::kUnsupported, fmt::format("fuse={} {}", text, why), step.text());
  };
  if (!distances) return fail("names no operation");
  const std::vector<std::optional<size_t>> owners = OwnersOf(graph, collectives);
  std::set<std::ptrdiff_t> found;
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    if (!owners[node] || !std::holds_alternative<ComputeNode>(graph.nodes()[node])) continue;
    const std::ptrdiff_t distance = Distance(node, *owners[node]);
    if (!distances->contains(distance)) continue;
    found.insert(distance);
    region.nodes.push_back(node);
  }
  if (found != *distances) return fail("names no operation");
  std::sort(region.nodes.begin(), region.nodes.end());
  // A text that is written in another way is another id of the same recipe.
  if (FuseText(graph, region) == text) return region;
  return fail("is not in ascending order");
}

bool IsCopy(const ProgramGraph& graph, size_t node) {
  const auto* const compute = std::get_if<ComputeNode>(&graph.nodes()[node]);
  if (compute == nullptr || compute->op != Op::kCast || compute->operands[0].is_literal()) {
    return false;
  }
  return graph.type(compute->operands[0].value).dtype == compute->to;
}

}  // namespace

std::string RegionName(const ProgramGraph& graph, size_t collective, const std::string& key) {
  return fmt::format("{} of %{}", key, graph.value_of_node(collective));
}

std::string FuseText(const ProgramGraph& graph, const Region& region) {
  const std::vector<size_t> collectives = CollectivesOf(graph, region);
  COTUNE_CHECK(!collectives.empty(), "a region has a collective");
  const std::vector<std::optional<size_t>> owners = OwnersOf(graph, collectives);
  std::set<std::ptrdiff_t> distances;
  for (const size_t node : region.nodes) {
    if (std::holds_alternative<CollectiveNode>(graph.nodes()[node])) continue;
    distances.insert(Distance(node, owners[node].value_or(collectives.front())));
  }
  return fmt::format("{}", fmt::join(distances, "."));
}

Result<Region> RegionOfStep(const Form& form, size_t position, const ChoiceId& step) {
  return RegionOf(form.graph, form.positions[position].collectives, step);
}

Result<Recipe> RecipeByFuseKeys(const ProgramGraph& graph, const ChoiceId& id) {
  return RecipeOfForm(FormWithoutRegions("", graph), id);
}

Result<Recipe> RecipeOfForm(const Form& form, const ChoiceId& id) {
  COTUNE_TRY(const std::vector<ChoiceId> steps, ChoicesFor(form.positions.size(), id));
  std::vector<Region> regions;
  for (size_t i = 0; i < steps.size(); ++i) {
    COTUNE_TRY(Region region, RegionOfStep(form, i, steps[i]));
    if (region.nodes.size() > 1) regions.push_back(std::move(region));
  }
  return MakeRecipe(form.graph, form.inputs, regions);
}

Result<std::string> ViaOf(const ChoiceId& id) {
  std::string via = id.HostKey(kViaKey);
  for (const ChoiceId& step : id.steps()) {
    if (step.HostKey(kViaKey) == via) continue;
    return Fail(ErrorCode::kUnsupported, "its steps are of different forms of the program",
                id.text());
  }
  return via;
}

Result<std::vector<ChoiceId>> ChoicesOfSteps(const Recipe& recipe, const ChoiceId& id) {
  return ChoicesFor(recipe.backend_steps().size(), id);
}

std::vector<ChoiceId> ChoicesOfCollectives(const ProgramGraph& graph, const ChoiceId& id) {
  if (id.has_host_keys()) return {};
  return id.StepsFor(graph.collectives().size());
}

Result<RecipeInWords> InWords(const RecipeSource& source, const ProgramGraph& graph,
                              const ChoiceId& id) {
  COTUNE_TRY(const Recipe recipe, source.RecipeOf(graph, id));
  COTUNE_TRY(const std::vector<ChoiceId> choices, ChoicesOfSteps(recipe, id));
  const std::vector<size_t> backend_steps = recipe.backend_steps();
  RecipeInWords words{id.HostKey(kViaKey), {}};
  for (size_t i = 0; i < recipe.steps.size(); ++i) {
    StepInWords& step = words.steps.emplace_back();
    for (const size_t node : recipe.steps[i].nodes) {
      step.operations.emplace_back(IsCopy(recipe.graph, node) ? "copy"
                                                              : Name(recipe.graph.nodes()[node]));
    }
    const BackendStep* const backend = recipe.steps[i].backend_step();
    step.is_bucket = backend != nullptr && backend->is_bucket();
    const auto place = std::find(backend_steps.begin(), backend_steps.end(), i);
    if (place == backend_steps.end()) continue;
    step.choice = choices[static_cast<size_t>(place - backend_steps.begin())].WithoutHostKeys();
  }
  return words;
}

}  // namespace cotune
