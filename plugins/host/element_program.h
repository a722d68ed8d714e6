// Runs programs without a collective on host memory: a list of instructions over blocks of a row.
#ifndef COTUNE_PLUGINS_HOST_ELEMENT_PROGRAM_H_
#define COTUNE_PLUGINS_HOST_ELEMENT_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hwy/aligned_allocator.h"
#include "plugins/host/element_plan.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// A program at one size. All planning and allocation happens in Prepare. Any thread; one call at a
// time for an object.
class ElementProgram {
 public:
  // COTUNE_UNSUPPORTED for an operation that does not compute with its dtype.
  static Result<std::unique_ptr<ElementProgram>> Prepare(const sdk::Program& part);

  // The whole program. Operands fit sdk::CheckOperands.
  void Run(const void* const* inputs, void* const* outputs);

  // The same in pieces, for programs whose values of many rows all have equally many: Begin, then
  // ranges that are all rows together, in any order, then End. Begin reads the inputs of one row
  // and computes with them, and End writes the outputs of one row. Addresses are of whole operands
  // (see AddressOfWhole), and those of values of many rows may differ from range to range.
  void Begin(const void* const* inputs);
  void RunRows(const void* const* inputs, void* const* outputs, uint64_t first_row, uint64_t rows);
  // Elements [first, first + count) of every value of many rows. Only if is_flat().
  void RunElements(const void* const* inputs, void* const* outputs, uint64_t first, uint64_t count);
  void End(const void* const* inputs, void* const* outputs);
  // Returns true if all values of many rows have the same columns and no element depends on
  // the end of a row.
  bool is_flat() const { return plan_.IsFlat(); }

 private:
  explicit ElementProgram(ElementPlan plan);

  const ElementPlan plan_;
  const hwy::AlignedFreeUniquePtr<std::byte[]> own_;
};

// The address that a whole operand would have whose element `first` lies at `piece`. There need be
// no memory at it.
inline std::byte* AddressOfWhole(const void* piece, uint64_t first, size_t element_bytes) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(piece) - first * element_bytes);
}

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_PROGRAM_H_
