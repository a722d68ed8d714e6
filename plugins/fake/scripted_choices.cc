#include "plugins/fake/scripted_choices.h"

#include <vector>

#include "fmt/format.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/element_type.h"
#include "plugins/sdk/problem.h"

namespace cotune::fake {
namespace {

// The problems of a region's collectives.
std::vector<cotune_problem_t> CollectivesOf(const sdk::Program& region) {
  std::vector<cotune_problem_t> problems;
  for (const sdk::ProgramNode& node : region.nodes) {
    if (node.collective) problems.push_back(ToAbi(*node.collective));
  }
  return problems;
}

}  // namespace

double CostUs(const ScriptedChoice& choice, uint64_t bytes) {
  return choice.cost_us + choice.cost_per_kib_us * static_cast<double>(bytes) / 1024;
}

std::string WhyRefused(const ScriptedChoice& choice, const cotune_problem_t& problem) {
  if (!choice.refuse.empty()) return choice.refuse;
  if ((choice.collectives & (1u << problem.collective)) == 0) return "not for this collective";
  if (problem.bytes < choice.bytes_min)
    return fmt::format("needs at least {} bytes", choice.bytes_min);
  if (problem.bytes > choice.bytes_max)
    return fmt::format("takes at most {} bytes", choice.bytes_max);
  return "";
}

cotune_choice_t EntryOf(const ScriptedChoice& choice, const std::string& reason) {
  uint32_t flags = COTUNE_CHOICE_REPRODUCIBLE;
  if (choice.is_default) flags |= COTUNE_CHOICE_DEFAULT;
  if (choice.collective_prepare) flags |= COTUNE_CHOICE_COLLECTIVE_PREPARE;
  return sdk::ChoiceEntry(choice.name, reason, choice.model_us, flags, choice.numerics);
}

cotune_problem_t ToAbi(const sdk::Problem& problem) {
  cotune_problem_t abi{};
  abi.struct_size = sizeof(abi);
  abi.collective = COTUNE_ALL_REDUCE + static_cast<uint32_t>(problem.collective);
  abi.reduction = sdk::Reduces(problem) ? COTUNE_SUM + static_cast<uint32_t>(problem.reduction) : 0;
  abi.memory_kind = COTUNE_MEMORY_HOST;
  abi.dtype = sdk::ElementTypeToAbi(problem.type);
  abi.count = problem.count;
  abi.bytes = sdk::ProblemBytes(problem);
  abi.world_size = abi.ranks_per_node = problem.world_size;
  abi.root = problem.root;
  return abi;
}

std::string WhyRegionRefused(const ScriptedChoice& choice, const sdk::Program& region) {
  if (!choice.region_refused.empty()) return choice.region_refused;
  if (choice.fuses == 0) return "runs collectives alone";
  if (choice.keeps_wide && region.rounds_values) return "keeps values wider than their dtype";
  const std::vector<cotune_problem_t> collectives = CollectivesOf(region);
  const size_t operations = region.nodes.size() - collectives.size();
  if (operations > choice.fuses) {
    return fmt::format("fuses at most {} operations, and the region has {}", choice.fuses,
                       operations);
  }
  for (const cotune_problem_t& problem : collectives) {
    if (std::string reason = WhyRefused(choice, problem); !reason.empty()) return reason;
  }
  return "";
}

}  // namespace cotune::fake
