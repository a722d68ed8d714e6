#include "plugins/cuda/fused/side_arguments.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "plugins/cuda/parts/part_shape.h"

namespace cotune::cuda {

// The tables of a bucket follow the operands that the kernel has, and have the room of stage ends.
static_assert(2 * kPiecesMax <= kStageEndsWords);
static_assert(sizeof(PieceArguments<3, 2>) == sizeof(PartArguments<3 + 2 * 2>));

SideArguments::SideArguments(const LeafRegion& region, const LeafSide& first)
    : arguments_(cuda::ArgumentsOf(first.part)) {
  operands_.reserve(region.pieces.size() * (first.inputs.size() + first.part.outputs.size()));
}

SideArguments SideArguments::OfSource(const LeafRegion& region) {
  SideArguments made(region, region.source());
  for (const LeafPiece& piece : region.pieces) made.Add(piece.source, {});
  made.AddPieces(region);
  return made;
}

SideArguments SideArguments::OfSink(const LeafRegion& region) {
  SideArguments made(region, region.sink());
  for (const LeafPiece& piece : region.pieces) made.Add(piece.sink, piece.outputs);
  made.AddPieces(region);
  return made;
}

void SideArguments::Add(const LeafSide& side, const std::vector<int>& outputs) {
  const std::vector<uint32_t> alignments = VectorAlignments(side.part, side.stages);
  for (size_t i = 0; i < side.inputs.size(); ++i) {
    const bool is_input = side.inputs[i] >= 0;
    operands_.push_back({is_input ? From::kInput : From::kRegister, side.inputs[i], alignments[i]});
  }
  for (size_t o = 0; o < side.part.outputs.size(); ++o) {
    const bool is_stored = !outputs.empty();
    operands_.push_back({is_stored ? From::kOutput : From::kRegister, is_stored ? outputs[o] : 0,
                         alignments[side.inputs.size() + o]});
  }
}

void SideArguments::AddPieces(const LeafRegion& region) {
  if (!region.is_bucket()) return;
  std::vector<unsigned long long> table(2 * region.pieces.size());
  unsigned long long leaf = 0;
  for (size_t p = 0; p < region.pieces.size(); ++p) {
    table[p] = leaf;
    table[region.pieces.size() + p] = region.pieces[p].elements;
    leaf += region.pieces[p].leaves();
  }
  std::memcpy(&arguments_.operands[operands_.size()], table.data(), table.size() * sizeof(leaf));
}

AnyPartArguments& SideArguments::Of(const void* const* inputs, void* const* outputs) {
  arguments_.is_aligned = 1;
  for (size_t o = 0; o < operands_.size(); ++o) {
    const OperandPlace& place = operands_[o];
    void* address = nullptr;
    if (place.from == From::kInput) address = const_cast<void*>(inputs[place.index]);
    if (place.from == From::kOutput) address = outputs[place.index];
    if (reinterpret_cast<uintptr_t>(address) % place.alignment != 0) arguments_.is_aligned = 0;
    arguments_.operands[o] = address;
  }
  return arguments_;
}

}  // namespace cotune::cuda
