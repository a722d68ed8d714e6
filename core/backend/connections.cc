#include "core/backend/connections.h"

#include <algorithm>
#include <cstddef>

#include "fmt/format.h"

namespace cotune {
namespace {

// Pairs of ranks that reach each other in one way.
struct Way {
  std::string text;
  size_t pairs = 0;
  size_t from = 0;  // the first of the pairs
  size_t to = 0;
};

std::vector<Way> WaysOf(const std::vector<std::vector<std::string>>& texts) {
  std::vector<Way> ways;
  for (size_t from = 0; from < texts.size(); ++from) {
    for (size_t to = 0; to < texts.size(); ++to) {
      if (from == to) continue;
      const std::string text = to < texts[from].size() ? texts[from][to] : "";
      const auto same = [&](const Way& way) { return way.text == text; };
      const auto found = std::find_if(ways.begin(), ways.end(), same);
      if (found == ways.end()) {
        ways.push_back({text, 1, from, to});
      } else {
        ++found->pairs;
      }
    }
  }
  return ways;
}

}  // namespace

std::string ConnectionsText(const std::vector<std::vector<std::string>>& texts) {
  const std::vector<Way> ways = WaysOf(texts);
  if (ways.empty()) return "";
  if (ways.size() == 1) {
    return ways[0].text.empty() ? "" : ways[0].text + " between all ranks";
  }
  const size_t pairs = texts.size() * (texts.size() - 1);
  std::string text;
  for (const Way& way : ways) {
    text +=
        fmt::format("{}{} ({} of {} pairs, as {} to {})", text.empty() ? "" : ", ",
                    way.text.empty() ? "not known" : way.text, way.pairs, pairs, way.from, way.to);
  }
  return text;
}

}  // namespace cotune
