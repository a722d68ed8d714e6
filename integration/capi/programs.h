// Programs of the C API: the handle, and how tensors become operands.
#ifndef COTUNE_INTEGRATION_CAPI_PROGRAMS_H_
#define COTUNE_INTEGRATION_CAPI_PROGRAMS_H_

#include <cstdint>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "integration/capi/cotune.h"

struct cotune_program {
  cotune::ProgramGraph graph;
};

namespace cotune::capi {

// R of a call with these inputs, whose dtypes and sizes must fit the program; 1 for a program
// without R. kUsage names the operand.
Result<uint64_t> RowsOfInputs(const ProgramGraph& graph, int world_size,
                              const cotune_tensor* inputs, size_t input_count);

// Whether the outputs fit the program at R rows. kUsage names the operand.
Status CheckOutputs(const ProgramGraph& graph, int world_size, uint64_t rows,
                    const cotune_tensor* outputs, size_t output_count);

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_PROGRAMS_H_
