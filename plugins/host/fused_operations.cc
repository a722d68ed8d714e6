#include "plugins/host/fused_operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/host/element_planner.h"

namespace cotune::host {
namespace {

Result<bool> IsFlat(const RegionSide& side) {
  COTUNE_TRY(const auto plan, PlanElements(sdk::WithoutCopies(side.program)));
  return plan.IsFlat();
}

}  // namespace

Result<RegionNeeds> NeedsOf(const RegionCut& cut) {
  RegionNeeds needs{.is_bucket = cut.is_bucket()};
  for (const RegionMember& member : cut.members) {
    needs.has_before = needs.is_bucket || member.before;
    needs.has_after = needs.is_bucket || member.after;
    // The operand of a bucket is copied before it is overwritten.
    needs.overwrites_operand = !needs.is_bucket && member.overwrites_operand;
    for (const std::optional<RegionSide>* side : {&member.before, &member.after}) {
      if (!*side) continue;
      COTUNE_TRY(const bool is_flat, IsFlat(**side));
      if (is_flat) continue;
      if (needs.is_bucket) {
        return Fail(COTUNE_UNSUPPORTED,
                    "an operation around one of several collectives depends on a whole row");
      }
      needs.unit_elements = member.columns;
    }
  }
  return needs;
}

Result<std::optional<FusedOperations::Side>> FusedOperations::PrepareSide(
    const std::optional<RegionSide>& cut) {
  if (!cut) return std::nullopt;
  COTUNE_TRY(auto program, ElementProgram::Prepare(cut->program));
  const auto value =
      std::find(cut->inputs.begin(), cut->inputs.end(), RegionSide::kCollectiveValue);
  return Side{.program = std::move(program),
              .inputs = std::vector<const void*>(cut->inputs.size()),
              .outputs = std::vector<void*>(cut->program.outputs.size()),
              .value_input = static_cast<size_t>(value - cut->inputs.begin())};
}

Result<std::unique_ptr<FusedOperations>> FusedOperations::Prepare(RegionCut cut) {
  std::unique_ptr<FusedOperations> made(new FusedOperations(std::move(cut)));
  for (const RegionMember& each : made->cut_.members) {
    Member& member = made->members_.emplace_back();
    COTUNE_TRY(member.before, PrepareSide(each.before));
    COTUNE_TRY(member.after, PrepareSide(each.after));
  }
  return made;
}

void FusedOperations::Begin(const void* const* inputs, void* const* outputs) {
  const auto set_inputs = [inputs](const RegionSide& cut, Side& side) {
    for (size_t i = 0; i < side.inputs.size(); ++i) {
      if (cut.inputs[i] != RegionSide::kCollectiveValue) side.inputs[i] = inputs[cut.inputs[i]];
    }
    side.program->Begin(side.inputs.data());
  };
  for (size_t m = 0; m < members_.size(); ++m) {
    const RegionMember& cut = cut_.members[m];
    Member& member = members_[m];
    if (member.before) {
      set_inputs(*cut.before, *member.before);
    } else {
      member.operand = inputs[cut.operand];
    }
    if (member.after) {
      set_inputs(*cut.after, *member.after);
      for (size_t o = 0; o < member.after->outputs.size(); ++o) {
        member.after->outputs[o] = outputs[cut.after->outputs[o]];
      }
    } else {
      member.value = outputs[cut.output];
    }
  }
}

void FusedOperations::Run(size_t member, Side& side, uint64_t first, uint64_t count) const {
  if (side.program->is_flat()) {
    side.program->RunElements(side.inputs.data(), side.outputs.data(), first, count);
  } else {
    const uint64_t columns = cut_.members[member].columns;
    side.program->RunRows(side.inputs.data(), side.outputs.data(), first / columns,
                          count / columns);
  }
}

void FusedOperations::ComputeMember(size_t member, uint64_t first, uint64_t count, void* to) {
  const size_t element_bytes = ElementBytes(cut_.problem.type);
  std::optional<Side>& before = members_[member].before;
  if (!before) {
    const auto* operand = static_cast<const std::byte*>(members_[member].operand);
    std::memcpy(to, operand + first * element_bytes, count * element_bytes);
    return;
  }
  before->outputs[0] = AddressOfWhole(to, first, element_bytes);
  Run(member, *before, first, count);
}

void FusedOperations::UseMember(size_t member, uint64_t first, uint64_t count, const void* piece) {
  const size_t element_bytes = ElementBytes(cut_.problem.type);
  std::optional<Side>& after = members_[member].after;
  if (!after) {
    auto* value = static_cast<std::byte*>(members_[member].value);
    std::memcpy(value + first * element_bytes, piece, count * element_bytes);
    return;
  }
  after->inputs[after->value_input] = AddressOfWhole(piece, first, element_bytes);
  Run(member, *after, first, count);
}

template <class Body>
void FusedOperations::ForMembers(uint64_t first, uint64_t count, const Body& body) const {
  const std::vector<RegionMember>& all = cut_.members;
  const uint64_t end = first + count;
  const auto next = std::upper_bound(
      all.begin(), all.end(), first,
      [](uint64_t element, const RegionMember& each) { return element < each.begin; });
  // The first member begins at element 0.
  for (auto m = static_cast<size_t>(next - all.begin()) - 1; m < all.size(); ++m) {
    if (all[m].begin >= end) return;
    const uint64_t from = std::max(first, all[m].begin);
    const uint64_t to = std::min(end, all[m].begin + all[m].count);
    if (from < to) body(m, from, to - from);
  }
}

void FusedOperations::ComputePacked(uint64_t first, uint64_t count, std::byte* to) {
  const size_t element_bytes = ElementBytes(cut_.problem.type);
  uint64_t done = first;
  const auto fill_gap = [&](uint64_t end) {
    std::memset(to + (done - first) * element_bytes, 0, (end - done) * element_bytes);
  };
  ForMembers(first, count, [&](size_t member, uint64_t from, uint64_t elements) {
    fill_gap(from);
    ComputeMember(member, from - cut_.members[member].begin, elements,
                  to + (from - first) * element_bytes);
    done = from + elements;
  });
  fill_gap(first + count);
}

void FusedOperations::UsePacked(uint64_t first, uint64_t count, const std::byte* piece) {
  const size_t element_bytes = ElementBytes(cut_.problem.type);
  ForMembers(first, count, [&](size_t member, uint64_t from, uint64_t elements) {
    UseMember(member, from - cut_.members[member].begin, elements,
              piece + (from - first) * element_bytes);
  });
}

void FusedOperations::ComputeOperand(uint64_t first, uint64_t count, void* to) {
  if (cut_.is_bucket()) {
    ComputePacked(first, count, static_cast<std::byte*>(to));
  } else {
    ComputeMember(0, first, count, to);
  }
}

void FusedOperations::UseValue(uint64_t first, uint64_t count, const void* piece) {
  if (cut_.is_bucket()) {
    UsePacked(first, count, static_cast<const std::byte*>(piece));
  } else {
    UseMember(0, first, count, piece);
  }
}

void FusedOperations::End() {
  for (Member& each : members_) {
    if (each.after) each.after->program->End(each.after->inputs.data(), each.after->outputs.data());
  }
}

}  // namespace cotune::host
