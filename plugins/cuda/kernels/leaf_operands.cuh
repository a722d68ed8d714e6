// The operands that the generated operations of one side of a region read and write.
#pragma once

#include "part_abi.h"

namespace cotune::cuda {

// The operands of one collective: all of the side.
template <typename Arguments>
struct OperandsOfSide {
  using Type = const Arguments&;
};

// The operands of one piece of a bucket, which begin at `first`.
template <int kOperands, int kPieces>
struct PieceOperands {
  struct List {
    const PieceArguments<kOperands, kPieces>& all;
    unsigned int first;
    __device__ __forceinline__ void* operator[](int i) const { return all.operands[first + i]; }
  };
  List operands;
};
template <int kOperands, int kPieces>
struct OperandsOfSide<PieceArguments<kOperands, kPieces>> {
  using Type = const PieceOperands<kOperands, kPieces>;
};

// True for the arguments of a bucket, which has several collectives.
template <typename Arguments>
constexpr bool kIsBucket = false;
template <int kOperands, int kPieces>
constexpr bool kIsBucket<PieceArguments<kOperands, kPieces>> = true;

template <typename Arguments>
using OperandsOf = typename OperandsOfSide<Arguments>::Type;

}  // namespace cotune::cuda
