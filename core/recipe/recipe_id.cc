#include "core/recipe/recipe_id.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>
#include <variant>

#include "fmt/format.h"

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

// The node that lies so far from the collective; nothing if the text is no distance of a local
// operation.
std::optional<size_t> NodeAt(const ProgramGraph& graph, size_t collective, std::string_view text) {
  std::ptrdiff_t distance = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, distance);
  if (error != std::errc() || stop != end) return std::nullopt;
  const std::ptrdiff_t node = static_cast<std::ptrdiff_t>(collective) + distance;
  if (node < 0 || node >= static_cast<std::ptrdiff_t>(graph.nodes().size())) return std::nullopt;
  const auto index = static_cast<size_t>(node);
  if (!std::holds_alternative<ComputeNode>(graph.nodes()[index])) return std::nullopt;
  return index;
}

Result<Region> RegionOf(const ProgramGraph& graph, size_t collective, const ChoiceId& step) {
  const std::string text = step.HostKey(kFuseKey);
  Region region{{collective}};
  for (std::string_view rest = text; !text.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::optional<size_t> node = NodeAt(graph, collective, rest.substr(0, end));
    if (!node) {
      return Fail(ErrorCode::kUnsupported, fmt::format("fuse={} names no operation", text),
                  step.text());
    }
    region.nodes.push_back(*node);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  std::sort(region.nodes.begin(), region.nodes.end());
  region.nodes.erase(std::unique(region.nodes.begin(), region.nodes.end()), region.nodes.end());
  // A text that is written in another way is another id of the same recipe.
  if (FuseText(graph, region) == text) return region;
  return Fail(ErrorCode::kUnsupported, fmt::format("fuse={} is not in ascending order", text),
              step.text());
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
  const size_t collective = CollectiveOf(graph, region);
  std::string text;
  for (const size_t node : region.nodes) {
    if (node == collective) continue;
    const auto distance =
        static_cast<std::ptrdiff_t>(node) - static_cast<std::ptrdiff_t>(collective);
    text += fmt::format("{}{}", text.empty() ? "" : ".", distance);
  }
  return text;
}

Result<Region> RegionOfStep(const Form& form, size_t position, const ChoiceId& step) {
  const Position& at = form.positions[position];
  if (!at.is_bucket()) return RegionOf(form.graph, at.collectives.front(), step);
  if (step.HostKey(kFuseKey).empty()) return Region{at.collectives};
  return Fail(ErrorCode::kUnsupported, "nothing runs inside of a bucket", step.text());
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
