#include "fusion/estimate.h"

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "core/problem/problem.h"
#include "core/recipe/make_recipe.h"
#include "fusion/node_links.h"
#include "fusion/subgraph_boundary.h"

namespace cotune {
namespace {

// A launch on an H100 or H200, and the time to read or write a byte at 2 TB/s.
constexpr double kLaunchPicoseconds = 1.7e6;
constexpr double kBytePicoseconds = 0.5;

double BytesOf(const ValueType& type, const ProgramSize& size) {
  const uint64_t rows = type.rows == Rows::kOne ? 1
                        : type.rows == Rows::kAll
                            ? size.rows
                            : size.rows / static_cast<uint64_t>(size.world_size);
  return static_cast<double>(rows) * type.columns * static_cast<double>(SizeBytes(type.dtype));
}

class Estimate {
 public:
  Estimate(const Legality& legality, const Region& region, const ProgramSize& size)
      : graph_(legality.graph()),
        links_(legality.links()),
        size_(size),
        region_(region),
        depth_(legality.DepthOf(region)),
        boundary_(SubgraphBoundary::Of(graph_, links_, region.nodes)) {}

  double Picoseconds() {
    for (const size_t collective : CollectivesOf(graph_, region_)) {
      if (Has([&](size_t node) { return links_.after(node)[collective]; })) CountBefore(collective);
      if (Has([&](size_t node) { return links_.after(collective)[node]; })) CountAfter(collective);
    }
    if (depth_.before > 0 && !has_part_before_) ++launches_;
    if (depth_.after > 0 && !has_part_after_) ++launches_;
    return launches_ * kLaunchPicoseconds + bytes_ * kBytePicoseconds;
  }

 private:
  template <typename Test>
  bool Has(const Test& test) const {
    return std::any_of(region_.nodes.begin(), region_.nodes.end(), test);
  }
  bool IsLocal(size_t node) const {
    return std::holds_alternative<ComputeNode>(graph_.nodes()[node]);
  }
  bool IsInside(size_t node) const {
    return std::find(region_.nodes.begin(), region_.nodes.end(), node) != region_.nodes.end();
  }
  double Bytes(ValueIndex value) const { return BytesOf(graph_.type(value), size_); }

  // The operand is neither written nor read. A part that remains before it writes another value
  // instead.
  void CountBefore(size_t collective) {
    bytes_ += 2 * Bytes(std::get<CollectiveNode>(graph_.nodes()[collective]).operand);
    for (const size_t node : region_.nodes) {
      if (!links_.after(node)[collective]) continue;
      for (const ValueIndex value : links_.operands(node)) {
        if (graph_.is_input(value)) continue;
        const size_t source = NodeOf(graph_, value);
        if (!IsLocal(source) || IsInside(source)) continue;
        has_part_before_ = true;
        bytes_ -= 2 * Bytes(value);
      }
    }
  }

  // The value of the collective is not read again, and not written either if only the region reads
  // it. A part that remains after the region reads other values instead.
  void CountAfter(size_t collective) {
    const ValueIndex own = graph_.value_of_node(collective);
    const auto& outputs = boundary_.outputs;
    const bool leaves = std::find(outputs.begin(), outputs.end(), own) != outputs.end();
    bytes_ += (leaves ? 1 : 2) * Bytes(own);
    for (const ValueIndex value : outputs) {
      if (value != own && !links_.after(collective)[NodeOf(graph_, value)]) continue;
      const std::vector<size_t>& readers = links_.readers(value);
      const bool is_read = std::any_of(readers.begin(), readers.end(), [&](size_t reader) {
        return IsLocal(reader) && !IsInside(reader);
      });
      if (!is_read) continue;
      has_part_after_ = true;
      bytes_ -= (links_.is_output(value) ? 1 : 2) * Bytes(value);
    }
  }

  const ProgramGraph& graph_;
  const NodeLinks& links_;
  const ProgramSize& size_;
  const Region& region_;
  const RegionDepth depth_;
  const SubgraphBoundary boundary_;
  bool has_part_before_ = false;
  bool has_part_after_ = false;
  double launches_ = 0;
  double bytes_ = 0;
};

}  // namespace

double SavedPicoseconds(const Legality& legality, const Region& region, const ProgramSize& size) {
  return Estimate(legality, region, size).Picoseconds();
}

}  // namespace cotune
