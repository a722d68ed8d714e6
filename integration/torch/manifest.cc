#include "integration/torch/manifest.h"

#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cotune::torch_operators {
namespace {

tl::unexpected<std::string> Wrong(std::string what) {
  return tl::make_unexpected("the manifest of a compiled graph cannot be read: " + std::move(what));
}

tl::expected<ManifestNode, std::string> NodeOf(const nlohmann::json& node, size_t index) {
  const auto program = node.is_object() ? node.find("program") : node.end();
  const auto rows = node.is_object() ? node.find("rows") : node.end();
  if (!node.is_object() || program == node.end() || !program->is_string() || rows == node.end() ||
      !rows->is_array()) {
    return Wrong(fmt::format("node {} is not an object with a program and its rows", index + 1));
  }
  ManifestNode result{program->get<std::string>(), {}};
  for (const nlohmann::json& each : *rows) {
    if (!each.is_number_unsigned() || each.get<uint64_t>() == 0) {
      return Wrong(fmt::format("node {} has the rows {}", index + 1, each.dump()));
    }
    result.rows.push_back(each.get<uint64_t>());
  }
  return result;
}

}  // namespace

tl::expected<std::vector<ManifestNode>, std::string> ParseManifest(std::string_view text) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return Wrong("it is no JSON");
  if (!document.is_array()) return Wrong("it is no JSON array");
  std::vector<ManifestNode> nodes;
  for (size_t i = 0; i < document.size(); ++i) {
    auto node = NodeOf(document[i], i);
    if (!node) return tl::make_unexpected(std::move(node.error()));
    nodes.push_back(std::move(*node));
  }
  return nodes;
}

}  // namespace cotune::torch_operators
