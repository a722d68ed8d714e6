#include "core/scheduler/pre_sync_fields.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {

AgreedFields FieldsOfTune(const AgreedFields& agreed, const TuningSettings& settings) {
  AgreedFields fields;
  for (auto& [name, value] : settings.AgreedValues()) {
    fields.emplace_back("setting " + name, std::move(value));
  }
  fields.insert(fields.end(), agreed.begin(), agreed.end());
  return fields;
}

AgreedFields PreSyncFields(const AgreedFields& agreed, const TuningSettings& settings,
                           std::span<const std::unique_ptr<MultiTemplate>> nodes,
                           size_t nodes_before) {
  AgreedFields fields = FieldsOfTune(agreed, settings);
  // In words as far as there is room, so that a difference can be read; the digest covers the rest.
  constexpr size_t kNodesInWords = 64;
  std::string texts;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Program& program = nodes[i]->program();
    const std::vector<uint64_t>& hints = nodes[i]->size_hints_bytes();
    if (i < kNodesInWords) {
      fields.emplace_back(
          fmt::format("node {}", nodes_before + i + 1),
          fmt::format("{}, {} from {} to {} bytes", ToText(program.anchor()),
                      hints.size() == 1 ? "1 size" : fmt::format("{} sizes", hints.size()),
                      hints.front(), hints.back()));
    }
    texts += program.ToText();
    for (uint64_t hint : hints) texts += fmt::format("{} ", hint);
  }
  fields.emplace_back("programs", Sha256Hex(texts).substr(0, 16));
  return fields;
}

}  // namespace cotune
