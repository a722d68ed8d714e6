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

  // Only rows [first_row, first_row + rows) of values that have many; addresses are of whole
  // operands. Outputs of one row are written by the call that has the last row. For programs whose
  // values of many rows all have equally many.
  void RunRows(const void* const* inputs, void* const* outputs, uint64_t first_row, uint64_t rows);

 private:
  explicit ElementProgram(ElementPlan plan);

  const ElementPlan plan_;
  const hwy::AlignedFreeUniquePtr<std::byte[]> own_;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_PROGRAM_H_
