#include "plugins/cuda/testing/inlined_text.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>

namespace cotune::cuda {

std::string InlinedText(const SourceText& source) {
  std::set<std::string, std::less<>> seen = {"prelude.cuh", "kernel_abi.h", "part_abi.h"};
  const auto text_of = [&](std::string_view name) -> std::string_view {
    if (name == source.name) return source.text;
    const auto found = std::find_if(source.headers.begin(), source.headers.end(),
                                    [&](const auto& header) { return header.first == name; });
    return found == source.headers.end() ? std::string_view() : found->second;
  };
  std::string inlined;
  const auto append = [&](const auto& self, std::string_view name) -> void {
    if (!seen.emplace(name).second) return;
    std::istringstream lines{std::string(text_of(name))};
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kInclude = "#include \"";
      if (line == "#pragma once") continue;
      if (line.starts_with(kInclude)) {
        self(self, line.substr(kInclude.size(), line.size() - kInclude.size() - 1));
      } else {
        inlined += line + "\n";
      }
    }
  };
  append(append, source.name);
  return inlined;
}

}  // namespace cotune::cuda
