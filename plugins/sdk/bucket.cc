#include "plugins/sdk/bucket.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

namespace cotune::sdk {
namespace {

class Cutter {
 public:
  explicit Cutter(const Program& bucket) : bucket_(bucket) {
    for (int v = bucket.input_count; v < values(); ++v) {
      if (NodeAt(v).kind == COTUNE_NODE_COLLECTIVE) collectives_.push_back(v);
    }
  }

  Result<std::vector<BucketPiece>> Run() {
    COTUNE_RETURN_IF_ERROR(Assign());
    COTUNE_RETURN_IF_ERROR(CheckOutputs());
    std::vector<BucketPiece> pieces;
    for (const int collective : collectives_) pieces.push_back(Take(collective));
    return pieces;
  }

 private:
  static constexpr int kNobody = -1;
  static constexpr int kSeveral = -2;  // several pieces read the input

  int values() const { return static_cast<int>(bucket_.values.size()); }
  bool IsInput(int value) const { return value < bucket_.input_count; }
  const ProgramNode& NodeAt(int value) const {
    return bucket_.nodes[static_cast<size_t>(value - bucket_.input_count)];
  }
  int OwnerOf(int value) const { return owners_[static_cast<size_t>(value)]; }

  template <typename Use>
  void ForOperands(int value, Use use) const {
    const ProgramNode& node = NodeAt(value);
    for (int o = 0; o < node.operand_count; ++o) {
      if (node.operands[static_cast<size_t>(o)] >= 0) use(node.operands[static_cast<size_t>(o)]);
    }
  }

  // The collective, all that follows from it, and all that these are computed from.
  std::set<int> LinkedTo(int collective) const {
    std::set<int> linked{collective};
    for (int v = collective + 1; v < values(); ++v) {
      bool follows = false;
      ForOperands(v, [&](int operand) { follows = follows || linked.contains(operand); });
      if (follows) linked.insert(v);
    }
    for (auto at = linked.rbegin(); at != linked.rend() && !IsInput(*at); ++at) {
      ForOperands(*at, [&](int operand) { linked.insert(operand); });
    }
    return linked;
  }

  Result<void> Assign() {
    owners_.assign(bucket_.values.size(), kNobody);
    for (const int collective : collectives_) {
      for (const int v : LinkedTo(collective)) {
        int& owner = owners_[static_cast<size_t>(v)];
        if (!IsInput(v) && owner != kNobody) {
          return Fail(COTUNE_UNSUPPORTED,
                      fmt::format("value {} belongs to two collectives of the bucket", v));
        }
        owner = owner == kNobody ? collective : kSeveral;
      }
    }
    for (int v = bucket_.input_count; v < values(); ++v) {
      if (OwnerOf(v) != kNobody) continue;
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("value {} belongs to no collective of the bucket", v));
    }
    return {};
  }

  Result<void> CheckOutputs() const {
    for (size_t o = 0; o < bucket_.outputs.size(); ++o) {
      const int into = bucket_.output_into[o];
      if (into < 0) continue;
      const int reader = OwnerOf(into);
      if (reader == kNobody || reader == OwnerOf(bucket_.outputs[o])) continue;
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("output {} overwrites an input of another collective", o));
    }
    return {};
  }

  BucketPiece Take(int collective) const {
    BucketPiece piece;
    Program& program = piece.program;
    program.input_count = bucket_.input_count;
    program.values.assign(bucket_.values.begin(), bucket_.values.begin() + bucket_.input_count);
    program.rounds_values = bucket_.rounds_values;
    program.is_symmetric = bucket_.is_symmetric;
    program.digest = bucket_.digest;
    std::vector<int> places(bucket_.values.size(), -1);
    std::iota(places.begin(), places.begin() + bucket_.input_count, 0);
    for (int v = bucket_.input_count; v < values(); ++v) {
      if (OwnerOf(v) != collective) continue;
      places[static_cast<size_t>(v)] = static_cast<int>(program.values.size());
      program.values.push_back(bucket_.values[static_cast<size_t>(v)]);
      program.nodes.push_back(NodeAt(v));
      for (int32_t& operand : program.nodes.back().operands) {
        if (operand >= 0) operand = places[static_cast<size_t>(operand)];
      }
    }
    piece.collective = places[static_cast<size_t>(collective)];
    for (size_t o = 0; o < bucket_.outputs.size(); ++o) {
      // An output that is an input belongs to no collective.
      if (OwnerOf(bucket_.outputs[o]) != collective || IsInput(bucket_.outputs[o])) continue;
      program.outputs.push_back(places[static_cast<size_t>(bucket_.outputs[o])]);
      program.output_into.push_back(bucket_.output_into[o]);
      piece.outputs.push_back(o);
    }
    return piece;
  }

  const Program& bucket_;
  std::vector<int> collectives_;  // values
  std::vector<int> owners_;       // by value: the collective that it belongs to
};

}  // namespace

Result<std::vector<BucketPiece>> PiecesOf(const Program& bucket) { return Cutter(bucket).Run(); }

}  // namespace cotune::sdk
