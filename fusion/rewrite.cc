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
  if (rules.only_agreeable) return "all ranks would need the same program";
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
    if (bytes <= kPackedBytesMax) continue;
    return fmt::format("a packed value would have {} bytes, of which {} are the most", bytes,
                       kPackedBytesMax);
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

}  // namespace

std::vector<Form> Rewrites(const Program& program, uint64_t rows, const FusionRules& rules,
                           std::vector<Refusal>& refusals) {
  std::vector<Form> forms;
  for (const char* const via : {kBucket, kSplit}) {
    Result<Form> form = FormAt(program, rows, rules, via);
    if (form) {
      forms.push_back(*std::move(form));
    } else {
      refusals.push_back({fmt::format("{}={}", kViaKey, via), std::move(form.error().what)});
    }
  }
  return forms;
}

Result<Form> FormAt(const Program& program, uint64_t rows, const FusionRules& rules,
                    std::string_view via) {
  COTUNE_TRY(Form form, FormVia(program.graph(), via));
  if (via.empty()) return form;
  std::optional<std::string> reason = WhyLeftOut(rules);
  if (!reason)
    reason = via == kSplit ? WhyNoShares(program, rows) : WhyTooLarge(form, program, rows);
  if (reason) return Fail(ErrorCode::kUnsupported, *std::move(reason));
  return form;
}

Result<Form> FormVia(const ProgramGraph& graph, std::string_view via) {
  if (via.empty()) return FormWithoutRegions("", graph);
  if (via == kBucket) return BucketForm(graph);
  if (via == kSplit) return SplitForm(graph);
  return Fail(ErrorCode::kUnsupported, fmt::format("no form of a program is {}={}", kViaKey, via));
}

}  // namespace cotune
