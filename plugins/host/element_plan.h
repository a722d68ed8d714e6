// A program without a collective as it runs on host memory: lists of instructions over blocks of a
// row.
#ifndef COTUNE_PLUGINS_HOST_ELEMENT_PLAN_H_
#define COTUNE_PLUGINS_HOST_ELEMENT_PLAN_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"

namespace cotune::host {

// Elements of one instruction: eight registers of f32 fill a first-level cache of 32 KiB.
inline constexpr uint64_t kBlockElements = 1024;

// Own memory for less than kWholeElements elements of the widest lane.
inline constexpr uint64_t kTailBytes = kWholeElements * 8;

// An operand of an instruction. It lies at base + row * row_bytes + (column >> shift) *
// column_bytes, where the base is this program's own memory or an operand of the call.
struct ElementOperand {
  enum class Base : uint8_t { kOwn, kInput, kOutput };
  Base base = Base::kOwn;
  uint8_t column_shift = 0;  // 3: a leaf of a row reduction
  uint16_t column_bytes = 0;
  uint16_t element_bytes = 0;  // of an instruction with bare operands
  uint32_t step = 1;           // 0: one splat for all elements
  uint32_t index = 0;          // kInput, kOutput
  uint64_t row_bytes = 0;
  uint64_t offset = 0;
};

struct ElementInstruction {
  ElementKernel kernel = nullptr;
  uint32_t fixed_count = 0;  // 0: the elements of the block
  uint32_t operand_count = 0;
  // The kernel computes whole vectors and an operand is not padded for them, because it is memory
  // of the call. The elements behind the last whole vectors are computed in own memory.
  bool has_bare_operands = false;
  ElementOperand to{};
  std::array<ElementOperand, 3> from{};
  std::array<double, 2> constants{};
};

// One walk over the blocks of a row, in between instructions on single values of the row.
struct ElementPass {
  uint64_t columns = 0;  // 0: nothing but single values
  std::vector<ElementInstruction> before{};
  std::vector<ElementInstruction> blocks{};
  std::vector<ElementInstruction> after{};
};

// All values of one kind of rows.
struct ElementLoop {
  uint32_t rows_kind = COTUNE_ROWS_ONE;
  uint64_t rows = 0;
  bool is_flat = false;  // nothing depends on where a row ends: all rows are one
  uint64_t columns = 0;  // is_flat
  std::vector<ElementPass> passes{};
};

struct ElementPlan {
  ElementLoop single;              // values of one row, into own memory
  std::vector<ElementLoop> loops;  // values of many rows
  ElementLoop single_stores;       // outputs of one row, which may overwrite what the loops read
  uint64_t own_bytes = 0;
  uint64_t tails = 0;  // own memory: kTailBytes for the result and for each of three operands
  struct Literal {
    uint64_t offset = 0;
    Lane lane = Lane::kF32;
    double value = 0;
  };
  std::vector<Literal> literals;
  bool IsFlat() const {
    return std::all_of(loops.begin(), loops.end(),
                       [](const ElementLoop& loop) { return loop.is_flat; });
  }
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_PLAN_H_
