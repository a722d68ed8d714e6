#include "plugins/host/element_kernels.h"

#include <cstddef>
#include <cstdint>

#include "plugins/host/element_kernel_tables.h"
#include "plugins/host/sdk_names.h"

namespace cotune::host {

Lane LaneOf(sdk::ValueDtype dtype) {
  switch (dtype) {
    case sdk::ValueDtype::kF64:
      return Lane::kF64;
    case sdk::ValueDtype::kI32:
      return Lane::kI32;
    case sdk::ValueDtype::kI64:
      return Lane::kI64;
    case sdk::ValueDtype::kU8:
      return Lane::kU8;
    case sdk::ValueDtype::kI8:
      return Lane::kI8;
    default:
      return Lane::kF32;
  }
}

size_t LaneBytes(Lane lane) {
  switch (lane) {
    case Lane::kF64:
    case Lane::kI64:
      return 8;
    case Lane::kF32:
    case Lane::kI32:
      return 4;
    default:
      return 1;
  }
}

ElementKernel FindElementKernel(uint32_t kind, Lane lane) {
  const ElementKernel found = FindArithmeticKernel(kind, lane);
  return found != nullptr ? found : FindFunctionKernel(kind, lane);
}

}  // namespace cotune::host
