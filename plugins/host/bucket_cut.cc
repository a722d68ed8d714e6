#include "plugins/host/bucket_cut.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace cotune::host {
namespace {

using sdk::Program;
using sdk::ProgramNode;

constexpr int kNone = -1;

class Cutter {
 public:
  explicit Cutter(const Program& region) : region_(region) {}

  Result<RegionCut> Run() {
    COTUNE_RETURN_IF_ERROR(FindCollectives());
    COTUNE_RETURN_IF_ERROR(FindMembers());
    COTUNE_RETURN_IF_ERROR(CheckOutputs());
    RegionCut cut{.problem = *region_.nodes[collectives_[0]].collective, .members = {}};
    cut.problem.count = 0;
    for (int m = 0; m < static_cast<int>(collectives_.size()); ++m) {
      COTUNE_TRY(auto member, CutMember(m));
      COTUNE_RETURN_IF_ERROR(Place(member, cut.problem));
      cut.members.push_back(std::move(member));
    }
    return cut;
  }

 private:
  static tl::unexpected<Failure> Refuse(const char* reason) {
    return Fail(COTUNE_UNSUPPORTED, reason);
  }
  static size_t Index(int value) { return static_cast<size_t>(value); }
  size_t nodes() const { return region_.nodes.size(); }
  bool IsInput(int value) const { return value >= 0 && value < region_.input_count; }
  // The node that defines a value which is no input.
  size_t NodeAt(int value) const { return Index(value - region_.input_count); }

  Result<void> FindCollectives() {
    for (size_t n = 0; n < nodes(); ++n) {
      if (region_.nodes[n].collective) collectives_.push_back(n);
    }
    const Problem& first = *region_.nodes[collectives_[0]].collective;
    for (const size_t n : collectives_) {
      const Problem& each = *region_.nodes[n].collective;
      if (each.collective != Collective::kAllReduce) {
        return Refuse("of several collectives in one region each has to be an all_reduce");
      }
      if (each.type != first.type || each.reduction != first.reduction) {
        return Refuse("several collectives in one region must have one dtype and one reduction");
      }
    }
    return {};
  }

  size_t RootOf(size_t node) {
    while (joined_to_[node] != node) {
      joined_to_[node] = joined_to_[joined_to_[node]];
      node = joined_to_[node];
    }
    return node;
  }

  // Nodes that read each other belong together, and to the one collective that is among them.
  Result<void> FindMembers() {
    joined_to_.resize(nodes());
    std::iota(joined_to_.begin(), joined_to_.end(), size_t{0});
    for (size_t n = 0; n < nodes(); ++n) {
      const ProgramNode& node = region_.nodes[n];
      for (int o = 0; o < node.operand_count; ++o) {
        const int operand = node.operands[Index(o)];
        if (operand >= region_.input_count) joined_to_[RootOf(n)] = RootOf(NodeAt(operand));
      }
    }
    std::vector<int> member_at(nodes(), kNone);  // by root
    for (size_t m = 0; m < collectives_.size(); ++m) {
      int& member = member_at[RootOf(collectives_[m])];
      if (member != kNone) {
        return Refuse("an operation has to do with several collectives of the region");
      }
      member = static_cast<int>(m);
    }
    member_of_.resize(nodes());
    for (size_t n = 0; n < nodes(); ++n) {
      member_of_[n] = member_at[RootOf(n)];
      if (member_of_[n] == kNone) {
        return Refuse("an operation has to do with no collective of the region");
      }
    }
    return {};
  }

  // A member reads its input while others write their outputs, in chunks of the packed value. It
  // reads an element before it has the value that may overwrite it.
  Result<void> CheckOutputs() const {
    std::vector<int> overwritten_by(Index(region_.input_count), kNone);
    std::vector<bool> has_output(collectives_.size(), false);
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      const int member = member_of_[NodeAt(region_.outputs[o])];
      has_output[Index(member)] = true;
      if (region_.output_into[o] >= 0) overwritten_by[Index(region_.output_into[o])] = member;
    }
    for (const bool each : has_output) {
      if (!each) return Refuse("no output follows from one of several collectives");
    }
    for (size_t n = 0; n < nodes(); ++n) {
      const ProgramNode& node = region_.nodes[n];
      for (int o = 0; o < node.operand_count; ++o) {
        const int operand = node.operands[Index(o)];
        if (!IsInput(operand)) continue;
        const int writer = overwritten_by[Index(operand)];
        if (writer != kNone && writer != member_of_[n]) {
          return Refuse("an output overwrites what another collective of the region reads");
        }
      }
    }
    return {};
  }

  // The region of one collective, with all inputs. `outputs` gets the outputs that it has.
  Program RegionOf(int member, std::vector<size_t>& outputs) const {
    Program made;
    made.input_count = region_.input_count;
    made.values.assign(region_.values.begin(), region_.values.begin() + region_.input_count);
    made.rounds_values = region_.rounds_values;
    made.is_symmetric = region_.is_symmetric;
    made.digest = region_.digest;
    std::vector<int> at(region_.values.size(), kNone);
    std::iota(at.begin(), at.begin() + region_.input_count, 0);
    for (size_t n = 0; n < nodes(); ++n) {
      if (member_of_[n] != member) continue;
      const size_t value = Index(region_.input_count) + n;
      at[value] = static_cast<int>(made.values.size());
      made.values.push_back(region_.values[value]);
      made.nodes.push_back(region_.nodes[n]);
      for (int32_t& operand : made.nodes.back().operands) {
        if (operand >= 0) operand = at[Index(operand)];
      }
    }
    for (size_t o = 0; o < region_.outputs.size(); ++o) {
      if (at[Index(region_.outputs[o])] == kNone) continue;
      made.outputs.push_back(at[Index(region_.outputs[o])]);
      made.output_into.push_back(region_.output_into[o]);
      outputs.push_back(o);
    }
    return made;
  }

  Result<RegionMember> CutMember(int index) const {
    std::vector<size_t> outputs;
    COTUNE_TRY(auto cut, CutRegion(RegionOf(index, outputs)));
    RegionMember member = std::move(cut.members[0]);
    member.output = outputs[member.output];
    if (member.after) {
      for (size_t& each : member.after->outputs) each = outputs[each];
    }
    DropCopies(member);
    return member;
  }

  // A side that only copies is none: what is packed is copied in any case.
  static void DropCopies(RegionMember& member) {
    const auto copied = [](const std::optional<RegionSide>& side) {
      if (!side || side->program.outputs.size() != 1) return kNone;
      const int32_t output = sdk::WithoutCopies(side->program).outputs[0];
      return output < side->program.input_count ? static_cast<int>(output) : kNone;
    };
    if (const int input = copied(member.before); input != kNone) {
      member.operand = member.before->inputs[Index(input)];
      member.before.reset();
    }
    if (const int input = copied(member.after);
        input != kNone && member.after->inputs[Index(input)] == RegionSide::kCollectiveValue) {
      member.output = member.after->outputs[0];
      member.after.reset();
    }
  }

  static Result<void> Place(RegionMember& member, Problem& packed) {
    constexpr uint64_t kLargestCount = uint64_t{1} << 50;  // that of every problem
    const uint64_t unit = kMemberAlignment / ElementBytes(packed.type);
    member.begin = (packed.count + unit - 1) / unit * unit;
    packed.count = member.begin + member.count;
    if (packed.count > kLargestCount) {
      return Refuse("the collectives of the region are too large for a packed value");
    }
    return {};
  }

  const Program& region_;
  std::vector<size_t> collectives_;  // nodes
  std::vector<size_t> joined_to_;    // by node
  std::vector<int> member_of_;       // by node: an index into collectives_
};

}  // namespace

Result<RegionCut> CutBucket(const Program& region) { return Cutter(region).Run(); }

uint32_t DigestOfPlaces(const RegionCut& bucket) {
  constexpr uint64_t kFnvPrime = 0x100000001b3;
  uint64_t digest = bucket.members.size();
  for (const RegionMember& each : bucket.members) {
    // The high bits of a product depend on all bits of what comes before.
    for (const uint64_t half : {each.count >> 32, each.count & 0xffffffff}) {
      digest = (digest ^ half) * kFnvPrime;
    }
    digest ^= digest >> 32;
  }
  return static_cast<uint32_t>(digest);
}

}  // namespace cotune::host
