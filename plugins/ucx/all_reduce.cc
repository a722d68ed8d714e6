#include <algorithm>
#include <vector>

#include "plugins/ucx/algorithms.h"

namespace cotune::ucx {
namespace {

using B = ScheduleBuilder;

// A rank of a knomial all_reduce: the fold of the ranks that are left over, and the place of what
// this rank has combined so far.
class KnomialRank {
 public:
  KnomialRank(const Problem& problem, int rank, const KnomialShape& shape)
      : rank_(rank), shape_(shape), extras_(shape.Extras(problem.world_size)) {}

  bool is_extra() const { return rank_ >= shape_.full; }
  // Returns whether rank `peer` sends a partial result, and not its input, in step `step`.
  bool IsPartial(int peer, size_t step) const { return step > 0 || peer < extras_; }

  // An extra rank hands in its input and takes the result.
  void AppendExtra(B& b) const {
    b.BeginStep();
    b.Send(rank_ - shape_.full, B::Input(), b.All());
    b.BeginStep();
    b.Receive(rank_ - shape_.full, B::Output(), b.All());
  }
  void AppendFold(B& b, int from, int into) const {
    if (rank_ >= extras_) return;
    b.BeginStep();
    b.Receive(rank_ + shape_.full, B::Packed(from, false), b.All());
    b.Reduce({B::Input(), B::Packed(from, false)}, B::Scratch(into, true), b.All(), false);
  }
  void AppendUnfold(B& b) const {
    if (rank_ >= extras_) return;
    b.BeginStep();
    b.Send(rank_ + shape_.full, B::Output(), b.All());
  }
  Place Combined(int region, size_t step) const {
    return IsPartial(rank_, step) ? B::Scratch(region, true) : B::Input();
  }

 private:
  const int rank_;
  const KnomialShape& shape_;
  const int extras_;
};

// A binary tree whose order of ranks is that of its nodes from left to right, so that every second
// node is a leaf. -1: none.
struct TreeNode {
  int parent = -1;
  int left = -1;
  int right = -1;
};

// The number in [begin, end) that one more than it has the most factors of two.
int RootOf(int begin, int end) {
  int root = begin;
  for (int node = begin; node < end; ++node) {
    const auto low = [](int value) { return value & -value; };
    if (low(node + 1) > low(root + 1)) root = node;
  }
  return root;
}

TreeNode NodeOfTree(int world_size, int node) {
  int begin = 0;
  int end = world_size;
  TreeNode result;
  while (true) {
    const int root = RootOf(begin, end);
    if (root == node) {
      if (begin < root) result.left = RootOf(begin, root);
      if (root + 1 < end) result.right = RootOf(root + 1, end);
      return result;
    }
    result.parent = root;
    (node < root ? end : begin) = node < root ? root : root + 1;
  }
}

}  // namespace

KnomialShape KnomialShapeOf(int world_size, int radix) {
  KnomialShape shape;
  while (shape.full * radix <= world_size) {
    shape.full *= radix;
    shape.factors.push_back(radix);
  }
  const int rest = world_size / shape.full;
  if (rest > 1) {
    shape.full *= rest;
    shape.factors.push_back(rest);
  }
  return shape;
}

int KnomialShape::LargestFactor() const {
  return *std::max_element(factors.begin(), factors.end());
}

Schedule ScheduleAlone(const Problem& problem, int rank, const Parameters& parameters) {
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(), b.All());
  return b.Finish();
}

Schedule ScheduleAllReduceKnomial(const Problem& problem, int rank, const Parameters& parameters) {
  const KnomialShape shape = KnomialShapeOf(problem.world_size, parameters.radix);
  const KnomialRank self(problem, rank, shape);
  B b(problem, rank, {.parameters = parameters});
  const int combined = b.AddRegion();
  std::vector<int> received;
  for (int i = 0; i < shape.LargestFactor(); ++i) received.push_back(b.AddRegion());
  b.BeginLane();
  if (self.is_extra()) {
    self.AppendExtra(b);
    return b.Finish();
  }
  self.AppendFold(b, received[0], combined);
  int stride = 1;
  for (size_t step = 0; step < shape.factors.size(); ++step) {
    const int factor = shape.factors[step];
    const int digit = rank / stride % factor;
    const Place own = self.Combined(combined, step);
    std::vector<Place> sources;
    b.BeginStep();
    for (int j = 0; j < factor; ++j) {
      const int peer = rank + (j - digit) * stride;
      sources.push_back(
          j == digit ? own
                     : B::Packed(received[static_cast<size_t>(j)], self.IsPartial(peer, step)));
      if (j == digit) continue;
      b.Send(peer, own, b.All());
      b.Receive(peer, sources.back(), b.All());
    }
    const bool is_last = step + 1 == shape.factors.size();
    b.Reduce(sources, is_last ? B::Output() : B::Scratch(combined, true), b.All(), is_last);
    stride *= factor;
  }
  self.AppendUnfold(b);
  return b.Finish();
}

Schedule ScheduleAllReduceScatterGather(const Problem& problem, int rank,
                                        const Parameters& parameters) {
  const KnomialShape shape = KnomialShapeOf(problem.world_size, parameters.radix);
  const KnomialRank self(problem, rank, shape);
  B b(problem, rank, {.parts = shape.full, .parameters = parameters});
  const int combined = b.AddRegion();
  const int folded = b.AddRegion();
  std::vector<int> received;
  for (int i = 0; i < shape.LargestFactor(); ++i) {
    received.push_back(b.AddRegionOfParts(shape.full / shape.factors.front()));
  }
  b.BeginLane();
  if (self.is_extra()) {
    self.AppendExtra(b);
    return b.Finish();
  }
  self.AppendFold(b, folded, combined);
  // The parts that this rank still combines begin at `low`.
  int low = 0;
  int size = shape.full;
  int stride = 1;
  for (size_t step = 0; step < shape.factors.size(); ++step) {
    const int factor = shape.factors[step];
    const int digit = rank / stride % factor;
    const int share = size / factor;
    const Place own = self.Combined(combined, step);
    const Span own_parts = B::Parts(low + digit * share, low + (digit + 1) * share);
    std::vector<Place> sources;
    b.BeginStep();
    for (int j = 0; j < factor; ++j) {
      const int peer = rank + (j - digit) * stride;
      sources.push_back(
          j == digit ? own
                     : B::Packed(received[static_cast<size_t>(j)], self.IsPartial(peer, step)));
      if (j == digit) continue;
      b.Send(peer, own, B::Parts(low + j * share, low + (j + 1) * share));
      b.Receive(peer, sources.back(), own_parts);
    }
    const bool is_last = step + 1 == shape.factors.size();
    b.Reduce(sources, is_last ? B::Output() : B::Scratch(combined, true), own_parts, is_last);
    low = own_parts.part_begin;
    size = share;
    stride *= factor;
  }
  for (size_t step = shape.factors.size(); step > 0; --step) {
    const int factor = shape.factors[step - 1];
    stride /= factor;
    const int digit = rank / stride % factor;
    const int first = low - digit * size;
    b.BeginStep();
    for (int j = 0; j < factor; ++j) {
      if (j == digit) continue;
      const int peer = rank + (j - digit) * stride;
      b.Send(peer, B::Output(), B::Parts(low, low + size));
      b.Receive(peer, B::Output(), B::Parts(first + j * size, first + (j + 1) * size));
    }
    low = first;
    size *= factor;
  }
  self.AppendUnfold(b);
  return b.Finish();
}

Schedule ScheduleAllReduceRing(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  const int next = (rank + 1) % world_size;
  const int previous = (rank + world_size - 1) % world_size;
  B b(problem, rank,
      {.parts = world_size, .messages_per_segment = world_size, .parameters = parameters});
  const int received = b.AddRegionOfParts(1);
  const int combined = b.AddRegionOfParts(1);
  const auto part = [&](int distance) {
    const int index = (rank - distance + 2 * world_size) % world_size;
    return B::Parts(index, index + 1);
  };
  b.BeginLane();
  for (int i = 0; i + 1 < world_size; ++i) {
    const Place arrival = B::Packed(received, i > 0);
    const bool is_last = i + 2 == world_size;
    b.BeginStep();
    b.Send(next, i == 0 ? B::Input() : B::Packed(combined, true), part(i));
    b.Receive(previous, arrival, part(i + 1));
    b.Reduce({arrival, B::Input()}, is_last ? B::Output() : B::Packed(combined, true), part(i + 1),
             is_last);
  }
  for (int i = 0; i + 1 < world_size; ++i) {
    b.BeginStep();
    b.Send(next, B::Output(), part(i + world_size - 1));
    b.Receive(previous, B::Output(), part(i));
  }
  return b.Finish();
}

Schedule ScheduleAllReduceDoubleTree(const Problem& problem, int rank,
                                     const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parts = 2, .messages_per_segment = 2, .parameters = parameters});
  const int from_left = b.AddRegionOfParts(1);
  const int from_right = b.AddRegionOfParts(1);
  const int combined = b.AddRegionOfParts(1);
  for (int tree = 0; tree < 2; ++tree) {
    const TreeNode node = NodeOfTree(world_size, (rank + tree) % world_size);
    const Span part = B::Parts(tree, tree + 1);
    const auto rank_of = [&](int of_node) { return (of_node - tree + world_size) % world_size; };
    const auto is_leaf = [&](int of_node) {
      const TreeNode other = NodeOfTree(world_size, of_node);
      return other.left < 0 && other.right < 0;
    };
    std::vector<Place> sources;
    b.BeginLane();
    b.BeginStep();
    if (node.left >= 0) {
      sources.push_back(B::Packed(from_left, !is_leaf(node.left)));
      b.Receive(rank_of(node.left), sources.back(), part);
    }
    sources.push_back(B::Input());
    if (node.right >= 0) {
      sources.push_back(B::Packed(from_right, !is_leaf(node.right)));
      b.Receive(rank_of(node.right), sources.back(), part);
    }
    const bool is_root = node.parent < 0;
    if (sources.size() > 1) {
      b.Reduce(sources, is_root ? B::Output() : B::Packed(combined, true), part, is_root);
    }
    if (!is_root) {
      b.BeginStep();
      b.Send(rank_of(node.parent), sources.size() > 1 ? B::Packed(combined, true) : B::Input(),
             part);
      b.BeginStep();
      b.Receive(rank_of(node.parent), B::Output(), part);
    }
    b.BeginStep();
    for (const int child : {node.left, node.right}) {
      if (child >= 0) b.Send(rank_of(child), B::Output(), part);
    }
  }
  return b.Finish();
}

}  // namespace cotune::ucx
