#include "gpu/driver/cuda_driver.h"

#include <dlfcn.h>

namespace cotune::gpu {
namespace {

tl::unexpected<DriverError> Fail(CuResult code, std::string text) {
  return tl::unexpected<DriverError>(DriverError{code, std::move(text)});
}

}  // namespace

DriverResult<CudaDriver> CudaDriver::Open(const char* path) {
  const char* name = path == nullptr ? "libcuda.so.1" : path;
  // Never closed: the driver keeps threads and handlers of its own.
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return Fail(-1, std::string("no NVIDIA driver: ") + dlerror() +
                        "; install it, or start the container with its GPUs");
  }
  CudaDriver driver;
#define COTUNE_FIND(member, symbol, arguments)                                       \
  driver.functions_.member =                                                         \
      reinterpret_cast<decltype(driver.functions_.member)>(dlsym(library, #symbol)); \
  if (driver.functions_.member == nullptr) {                                         \
    return Fail(-1, std::string("the NVIDIA driver (") + name +                      \
                        ") lacks " #symbol "; CUDA 12 or newer is needed");          \
  }
  COTUNE_CUDA_DRIVER_FUNCTIONS(COTUNE_FIND)
#undef COTUNE_FIND
  if (auto started = driver.Check(driver->Init(0), "cuInit"); !started) {
    return tl::unexpected(started.error());
  }
  return driver;
}

DriverResult<void> CudaDriver::Check(CuResult code, const char* call) const {
  if (code == kCuSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  functions_.GetErrorName(code, &name);
  functions_.GetErrorString(code, &text);
  return Fail(code, std::string(call) + " failed: " + (name == nullptr ? "error" : name) + " (" +
                        std::to_string(code) + (text == nullptr ? "" : std::string(", ") + text) +
                        ")");
}

}  // namespace cotune::gpu
