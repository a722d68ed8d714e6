#include "integration/torch/cuda_stream.h"

#include <dlfcn.h>

#include <string>

#include "gpu/driver/cuda_driver.h"
#include "integration/torch/operator_error.h"

namespace cotune::torch_operators {
namespace {

using CurrentStreamFunction = int32_t (*)(int32_t device, void** stream);

// PyTorch opens libtorch_cuda.so itself, and not for everyone to see.
CurrentStreamFunction FindCurrentStreamFunction() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr
                            : reinterpret_cast<CurrentStreamFunction>(
                                  dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

}  // namespace

void* CurrentCudaStream(int32_t device) {
  static const CurrentStreamFunction current_stream = FindCurrentStreamFunction();
  void* stream = nullptr;
  if (current_stream == nullptr || current_stream(device, &stream) != 0) {
    throw OperatorError(
        "cotune: PyTorch's current CUDA stream cannot be had; is this PyTorch 2.11 "
        "or newer, with CUDA?");
  }
  return stream;
}

bool IsCapturing(void* stream) {
  static const gpu::DriverResult<gpu::CudaDriver> driver = gpu::CudaDriver::Open();
  if (!driver) return false;
  gpu::CuStreamCaptureStatus status{};
  const auto code = (*driver)->StreamIsCapturing(static_cast<gpu::CuStream>(stream), &status);
  return code == 0 && status != gpu::kCuCaptureNone;
}

}  // namespace cotune::torch_operators
