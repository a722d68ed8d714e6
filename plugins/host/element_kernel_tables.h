// The files of kernels that FindElementKernel joins. Null: the operation is not in that file.
#ifndef COTUNE_PLUGINS_HOST_ELEMENT_KERNEL_TABLES_H_
#define COTUNE_PLUGINS_HOST_ELEMENT_KERNEL_TABLES_H_

#include <cstdint>

#include "plugins/host/element_kernels.h"

namespace cotune::host {

// Arithmetic, comparisons and selections.
ElementKernel FindArithmeticKernel(uint32_t kind, Lane lane);
// exp, log, tanh and what is made of them.
ElementKernel FindFunctionKernel(uint32_t kind, Lane lane);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ELEMENT_KERNEL_TABLES_H_
