// The manifest of a compiled graph: the programs that are tuned together. Pure.
#ifndef COTUNE_INTEGRATION_TORCH_MANIFEST_H_
#define COTUNE_INTEGRATION_TORCH_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tl/expected.hpp"

namespace cotune::torch_operators {

struct ManifestNode {
  std::string program;         // as text
  std::vector<uint64_t> rows;  // that are tuned; not empty
  // The program is called with other numbers of rows, too: they are dynamic.
  bool has_any_rows = false;
  bool operator==(const ManifestNode&) const = default;
};

// Reads the text that cotune_torch.h describes. The error says what is wrong with it.
tl::expected<std::vector<ManifestNode>, std::string> ParseManifest(std::string_view text);

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_MANIFEST_H_
