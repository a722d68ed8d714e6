#include "plugins/host/bucket_cut.h"

#include <optional>
#include <utility>
#include <vector>

#include "plugins/sdk/bucket.h"

namespace cotune::host {
namespace {

using sdk::Program;

constexpr int kNone = -1;

class Cutter {
 public:
  explicit Cutter(const Program& region) : region_(region) {}

  Result<RegionCut> Run() {
    COTUNE_TRY(const std::vector<sdk::BucketPiece> pieces, sdk::PiecesOf(region_));
    COTUNE_TRY(Problem problem, ProblemOf(pieces));
    RegionCut cut{.problem = problem, .members = {}};
    cut.problem.count = 0;
    for (const sdk::BucketPiece& piece : pieces) {
      if (piece.outputs.empty()) {
        return Refuse("no output follows from one of several collectives");
      }
      COTUNE_TRY(auto member, CutMember(piece));
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

  static const Problem& CollectiveOf(const sdk::BucketPiece& piece) {
    return *piece.program.nodes[Index(piece.collective - piece.program.input_count)].collective;
  }

  // The problem that all collectives have but for their sizes.
  static Result<Problem> ProblemOf(const std::vector<sdk::BucketPiece>& pieces) {
    const Problem& first = CollectiveOf(pieces.front());
    for (const sdk::BucketPiece& piece : pieces) {
      const Problem& each = CollectiveOf(piece);
      if (each.collective != Collective::kAllReduce) {
        return Refuse("of several collectives in one region each has to be an all_reduce");
      }
      if (each.type != first.type || each.reduction != first.reduction) {
        return Refuse("several collectives in one region must have one dtype and one reduction");
      }
    }
    return first;
  }

  static Result<RegionMember> CutMember(const sdk::BucketPiece& piece) {
    COTUNE_TRY(auto cut, CutRegion(piece.program));
    RegionMember member = std::move(cut.members[0]);
    member.output = piece.outputs[member.output];
    if (member.after) {
      for (size_t& each : member.after->outputs) each = piece.outputs[each];
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
