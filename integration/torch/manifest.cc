#include "integration/torch/manifest.h"

#include <charconv>
#include <utility>

#include "fmt/format.h"

namespace cotune::torch_operators {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kRowsWord = "rows ";
constexpr std::string_view kAnyWord = "any ";
// The same for rows that the user has chosen.
constexpr std::string_view kChosenWord = "chosen ";
// The first part may name the graph, for those who compare graphs.
constexpr std::string_view kGraphWord = "graph ";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {
    end = text.find(separator, begin);
    parts.push_back(Trimmed(text.substr(begin, end - begin)));
  }
  return parts;
}

tl::unexpected<std::string> Wrong(std::string what) {
  return tl::make_unexpected("the manifest of a compiled graph cannot be read: " + std::move(what));
}

tl::expected<ManifestNode, std::string> NodeOf(std::string_view text, size_t index) {
  const size_t colon = text.find(':');
  std::string_view head = text.substr(0, colon);
  const std::string_view program =
      colon == std::string_view::npos ? std::string_view() : Trimmed(text.substr(colon + 1));
  bool has_any_rows = false;
  for (const std::string_view word : {kAnyWord, kChosenWord}) {
    if (!head.starts_with(word)) continue;
    has_any_rows = true;
    head = Trimmed(head.substr(word.size()));
    break;
  }
  if (!head.starts_with(kRowsWord) || program.empty()) {
    return Wrong(fmt::format("part {} is not \"rows NUMBERS: PROGRAM\"", index + 1));
  }
  ManifestNode result{std::string(program), {}, has_any_rows};
  for (const std::string_view each : Split(head.substr(kRowsWord.size()), ',')) {
    uint64_t rows = 0;
    const auto [end, error] = std::from_chars(each.data(), each.data() + each.size(), rows);
    if (error != std::errc() || end != each.data() + each.size() || rows == 0) {
      return Wrong(fmt::format("part {} has the rows \"{}\"", index + 1, each));
    }
    result.rows.push_back(rows);
  }
  return result;
}

}  // namespace

tl::expected<std::vector<ManifestNode>, std::string> ParseManifest(std::string_view text) {
  std::vector<ManifestNode> nodes;
  std::vector<std::string_view> parts = Split(text, '|');
  if (parts.size() > 1 && parts.front().starts_with(kGraphWord)) parts.erase(parts.begin());
  for (const std::string_view each : parts) {
    auto node = NodeOf(each, nodes.size());
    if (!node) return tl::make_unexpected(std::move(node.error()));
    nodes.push_back(std::move(*node));
  }
  return nodes;
}

}  // namespace cotune::torch_operators
