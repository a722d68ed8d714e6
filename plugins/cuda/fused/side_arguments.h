// The arguments of one side of a region, as its kernel takes them.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_SIDE_ARGUMENTS_H_
#define COTUNE_PLUGINS_CUDA_FUSED_SIDE_ARGUMENTS_H_

#include <cstdint>
#include <vector>

#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/parts/part_arguments.h"

namespace cotune::cuda {

// Made once for a region at one size; a launch allocates nothing. One thread at a time.
class SideArguments {
 public:
  static SideArguments OfSource(const LeafRegion& region);
  static SideArguments OfSink(const LeafRegion& region);

  // inputs, outputs: those of the region. The result stays this object's.
  AnyPartArguments& Of(const void* const* inputs, void* const* outputs);

 private:
  enum class From : uint8_t { kInput, kOutput, kRegister };
  struct OperandPlace {
    From from = From::kRegister;  // a value that stays in registers has no address
    int index = 0;                // among the inputs or outputs of the region
    uint32_t alignment = 1;       // see VectorAlignments
  };

  SideArguments(const LeafRegion& region, const LeafSide& first);
  void Add(const LeafSide& side, const std::vector<int>& outputs);
  void AddPieces(const LeafRegion& region);

  std::vector<OperandPlace> operands_;
  AnyPartArguments arguments_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_SIDE_ARGUMENTS_H_
