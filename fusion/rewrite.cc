#include "fusion/rewrite.h"

#include <optional>
#include <string>
#include <utility>

#include "core/recipe/recipe.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "fusion/bucket.h"
#include "fusion/split.h"

namespace cotune {
namespace {

// Nothing if the settings take forms with other collectives; else the setting that leaves them out.
std::optional<std::string> WhyLeftOut(const FusionRules& rules) {
  if (!rules.enabled) return "collective_fusion_enabled is off";
  if (!rules.Takes(FusionType::kCrossSubgraph)) {
    return "custom_op_fusion_types leaves cross_subgraph out";
  }
  return std::nullopt;
}

// Nothing if every packed value is small enough.
std::optional<std::string> WhyTooLarge(const Form& form, const Program& program, uint64_t rows) {
  for (const Region& bucket : form.Buckets()) {
    std::vector<ValueIndex> pieces;
    for (const size_t node : bucket.nodes) pieces.push_back(form.graph.value_of_node(node));
    const uint64_t bytes = PackedBytes(form.graph, pieces, program.group().world_size, rows);
    if (bytes <= kBucketBytesMax) continue;
    return fmt::format("a packed value would have {} bytes, of which {} are the most", bytes,
                       kBucketBytesMax);
  }
  return std::nullopt;
}

// Nothing if every rank has as many rows as the others.
std::optional<std::string> WhyNoShares(const Program& program, uint64_t rows) {
  const int32_t ranks = program.group().world_size;
  if (ranks == 1) return "one rank alone has nothing to share out";
  if (rows % static_cast<uint64_t>(ranks) == 0) return std::nullopt;
  return fmt::format("{} ranks have no equal shares of {} rows", ranks, rows);
}

// Adds the form, or the reason against it. `why_not_here` judges a form at this size.
template <typename Judge>
void AddForm(std::string_view via, Result<Form> form, const FusionRules& rules,
             const Judge& why_not_here, std::vector<Form>& forms, std::vector<Refusal>& refusals) {
  std::optional<std::string> reason;
  if (!form) {
    reason = std::move(form.error().what);
  } else if (!(reason = WhyLeftOut(rules))) {
    reason = why_not_here(*form);
  }
  if (reason) {
    refusals.push_back({fmt::format("{}={}", kViaKey, via), *std::move(reason)});
  } else {
    forms.push_back(*std::move(form));
  }
}

}  // namespace

std::vector<Form> Rewrites(const Program& program, uint64_t rows, const FusionRules& rules,
                           std::vector<Refusal>& refusals) {
  std::vector<Form> forms;
  AddForm(
      kBucket, BucketForm(program.graph()), rules,
      [&](const Form& form) { return WhyTooLarge(form, program, rows); }, forms, refusals);
  AddForm(
      kSplit, SplitForm(program.graph()), rules,
      [&](const Form&) { return WhyNoShares(program, rows); }, forms, refusals);
  return forms;
}

Result<Form> FormVia(const ProgramGraph& graph, std::string_view via) {
  if (via.empty()) return FormWithoutRegions("", graph);
  if (via == kBucket) return BucketForm(graph);
  if (via == kSplit) return SplitForm(graph);
  return Fail(ErrorCode::kUnsupported, fmt::format("no form of a program is {}={}", kViaKey, via));
}

}  // namespace cotune
