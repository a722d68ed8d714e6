// The CUDA driver of this machine, found at run time: one build runs with and without it.
#ifndef COTUNE_GPU_DRIVER_CUDA_DRIVER_H_
#define COTUNE_GPU_DRIVER_CUDA_DRIVER_H_

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "gpu/driver/cuda_types.h"

namespace cotune::gpu {

// An error of the driver in one line: the call, the driver's name of the error and its text.
struct DriverError {
  CuResult code = -1;  // -1: the driver is not there
  std::string text;
};
template <typename T>
using DriverResult = tl::expected<T, DriverError>;

// X(member, symbol, arguments): every function that cotune calls. The symbols carry the version of
// the ABI that cuda_types.h declares.
// clang-format off
#define COTUNE_CUDA_DRIVER_FUNCTIONS(X)                                                            \
  X(Init, cuInit, (unsigned int flags))                                                            \
  X(DriverGetVersion, cuDriverGetVersion, (int* version))                                          \
  X(GetErrorName, cuGetErrorName, (CuResult code, const char** text))                              \
  X(GetErrorString, cuGetErrorString, (CuResult code, const char** text))                          \
  X(DeviceGetCount, cuDeviceGetCount, (int* count))                                                \
  X(DeviceGet, cuDeviceGet, (CuDevice* device, int ordinal))                                       \
  X(DeviceGetName, cuDeviceGetName, (char* name, int size, CuDevice device))                       \
  X(DeviceGetUuid, cuDeviceGetUuid_v2, (CuUuid* uuid, CuDevice device))                            \
  X(DeviceGetPciBusId, cuDeviceGetPCIBusId, (char* text, int size, CuDevice device))               \
  X(DeviceGetAttribute, cuDeviceGetAttribute, (int* value, CuDeviceAttribute id, CuDevice device)) \
  X(DeviceTotalMemory, cuDeviceTotalMem_v2, (size_t* bytes, CuDevice device))                      \
  X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, CuDevice device, CuDevice peer))        \
  X(DeviceGetP2pAttribute, cuDeviceGetP2PAttribute,                                                \
    (int* value, CuP2pAttribute id, CuDevice from, CuDevice to))                                   \
  X(PrimaryContextRetain, cuDevicePrimaryCtxRetain, (CuContext* context, CuDevice device))         \
  X(PrimaryContextRelease, cuDevicePrimaryCtxRelease_v2, (CuDevice device))                        \
  X(ContextSetCurrent, cuCtxSetCurrent, (CuContext context))                                       \
  X(ContextGetCurrent, cuCtxGetCurrent, (CuContext* context))                                      \
  X(ContextGetDevice, cuCtxGetDevice, (CuDevice* device))                                          \
  X(ContextSynchronize, cuCtxSynchronize, ())                                                      \
  X(MemoryGetInfo, cuMemGetInfo_v2, (size_t* free, size_t* total))                                 \
  X(MemoryAllocate, cuMemAlloc_v2, (CuDevicePointer* pointer, size_t bytes))                       \
  X(MemoryFree, cuMemFree_v2, (CuDevicePointer pointer))                                           \
  X(MemoryGetRange, cuMemGetAddressRange_v2,                                                       \
    (CuDevicePointer* base, size_t* bytes, CuDevicePointer pointer))                               \
  X(PointerGetAttribute, cuPointerGetAttribute,                                                    \
    (void* value, CuPointerAttribute id, CuDevicePointer pointer))                                 \
  X(HostAllocate, cuMemHostAlloc, (void** pointer, size_t bytes, unsigned int flags))              \
  X(HostFree, cuMemFreeHost, (void* pointer))                                                      \
  X(HostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                            \
    (CuDevicePointer* device_pointer, void* pointer, unsigned int flags))                          \
  X(CopyToDevice, cuMemcpyHtoD_v2, (CuDevicePointer to, const void* from, size_t bytes))           \
  X(CopyToHost, cuMemcpyDtoH_v2, (void* to, CuDevicePointer from, size_t bytes))                   \
  X(CopyOnDeviceAsync, cuMemcpyDtoDAsync_v2,                                                       \
    (CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream))                     \
  X(CopyToDeviceAsync, cuMemcpyHtoDAsync_v2,                                                       \
    (CuDevicePointer to, const void* from, size_t bytes, CuStream stream))                         \
  X(CopyToHostAsync, cuMemcpyDtoHAsync_v2,                                                         \
    (void* to, CuDevicePointer from, size_t bytes, CuStream stream))                               \
  X(SetBytes, cuMemsetD8_v2, (CuDevicePointer to, unsigned char value, size_t count))              \
  X(SetBytesAsync, cuMemsetD8Async,                                                                \
    (CuDevicePointer to, unsigned char value, size_t count, CuStream stream))                      \
  X(IpcGetHandle, cuIpcGetMemHandle, (CuIpcMemHandle* handle, CuDevicePointer pointer))            \
  X(IpcOpenHandle, cuIpcOpenMemHandle_v2,                                                          \
    (CuDevicePointer* pointer, CuIpcMemHandle handle, unsigned int flags))                         \
  X(IpcCloseHandle, cuIpcCloseMemHandle, (CuDevicePointer pointer))                                \
  X(MemoryGetGranularity, cuMemGetAllocationGranularity,                                           \
    (size_t* bytes, const CuMemAllocationProperties* properties, CuMemGranularity option))         \
  X(MemoryCreate, cuMemCreate,                                                                     \
    (CuMemGenericHandle* handle, size_t bytes, const CuMemAllocationProperties* properties,        \
     unsigned long long flags))                                                                    \
  X(MemoryRelease, cuMemRelease, (CuMemGenericHandle handle))                                      \
  X(MemoryReserve, cuMemAddressReserve,                                                            \
    (CuDevicePointer* pointer, size_t bytes, size_t alignment, CuDevicePointer wish,               \
     unsigned long long flags))                                                                    \
  X(MemoryUnreserve, cuMemAddressFree, (CuDevicePointer pointer, size_t bytes))                    \
  X(MemoryMap, cuMemMap,                                                                           \
    (CuDevicePointer pointer, size_t bytes, size_t offset, CuMemGenericHandle handle,              \
     unsigned long long flags))                                                                    \
  X(MemoryUnmap, cuMemUnmap, (CuDevicePointer pointer, size_t bytes))                              \
  X(MemorySetAccess, cuMemSetAccess,                                                               \
    (CuDevicePointer pointer, size_t bytes, const CuMemAccess* access, size_t count))              \
  X(MemoryRetainHandle, cuMemRetainAllocationHandle, (CuMemGenericHandle* handle, void* pointer))  \
  X(MemoryExportHandle, cuMemExportToShareableHandle,                                              \
    (void* shareable, CuMemGenericHandle handle, CuMemHandleType type, unsigned long long flags))  \
  X(MemoryImportHandle, cuMemImportFromShareableHandle,                                            \
    (CuMemGenericHandle* handle, void* shareable, CuMemHandleType type))                           \
  X(ModuleLoadData, cuModuleLoadData, (CuModule* module, const void* image))                       \
  X(ModuleUnload, cuModuleUnload, (CuModule module))                                               \
  X(ModuleGetFunction, cuModuleGetFunction,                                                        \
    (CuFunction* function, CuModule module, const char* name))                                     \
  X(FunctionGetAttribute, cuFuncGetAttribute,                                                      \
    (int* value, CuFunctionAttribute id, CuFunction function))                                     \
  X(OccupancyBlocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                  \
    (int* blocks, CuFunction function, int threads, size_t shared_bytes))                          \
  X(LaunchKernel, cuLaunchKernelEx,                                                                \
    (const CuLaunchConfig* config, CuFunction function, void** arguments, void** extra))           \
  X(StreamCreate, cuStreamCreate, (CuStream* stream, unsigned int flags))                          \
  X(StreamDestroy, cuStreamDestroy_v2, (CuStream stream))                                          \
  X(StreamSynchronize, cuStreamSynchronize, (CuStream stream))                                     \
  X(StreamQuery, cuStreamQuery, (CuStream stream))                                                 \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, (CuStream stream, CuStreamCaptureMode mode))      \
  X(StreamEndCapture, cuStreamEndCapture, (CuStream stream, CuGraph* graph))                       \
  X(StreamWaitEvent, cuStreamWaitEvent, (CuStream stream, CuEvent event, unsigned int flags))      \
  X(StreamIsCapturing, cuStreamIsCapturing, (CuStream stream, CuStreamCaptureStatus* status))      \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                                               \
    (CuStream stream, CuStreamCaptureStatus* status, unsigned long long* id, CuGraph* graph,       \
     const void** dependencies, size_t* dependency_count))                                         \
  X(ThreadExchangeCaptureMode, cuThreadExchangeStreamCaptureMode, (CuStreamCaptureMode* mode))     \
  X(GraphInstantiate, cuGraphInstantiateWithFlags,                                                 \
    (CuGraphExec* exec, CuGraph graph, unsigned long long flags))                                  \
  X(GraphUpload, cuGraphUpload, (CuGraphExec exec, CuStream stream))                               \
  X(GraphLaunch, cuGraphLaunch, (CuGraphExec exec, CuStream stream))                               \
  X(GraphExecDestroy, cuGraphExecDestroy, (CuGraphExec exec))                                      \
  X(GraphDestroy, cuGraphDestroy, (CuGraph graph))                                                 \
  X(UserObjectCreate, cuUserObjectCreate,                                                          \
    (CuUserObject* object, void* data, CuHostFunction destroy, unsigned int count,                 \
     unsigned int flags))                                                                          \
  X(UserObjectRelease, cuUserObjectRelease, (CuUserObject object, unsigned int count))             \
  X(GraphRetainUserObject, cuGraphRetainUserObject,                                                \
    (CuGraph graph, CuUserObject object, unsigned int count, unsigned int flags))                  \
  X(EventCreate, cuEventCreate, (CuEvent* event, unsigned int flags))                              \
  X(EventRecord, cuEventRecord, (CuEvent event, CuStream stream))                                  \
  X(EventQuery, cuEventQuery, (CuEvent event))                                                     \
  X(EventElapsedMs, cuEventElapsedTime, (float* ms, CuEvent start, CuEvent end))                   \
  X(EventDestroy, cuEventDestroy_v2, (CuEvent event))
// clang-format on

// The driver's functions and what they need. Any thread; copies are cheap; never unloaded.
class CudaDriver {
 public:
  struct Functions {
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define COTUNE_DECLARE(member, symbol, arguments) CuResult(*member) arguments = nullptr;
    COTUNE_CUDA_DRIVER_FUNCTIONS(COTUNE_DECLARE)
#undef COTUNE_DECLARE
  };

  // Opens `path`, or the system's libcuda.so.1, and initialises it. The error says whether the
  // driver is missing, too old (which symbol), or finds no GPU.
  static DriverResult<CudaDriver> Open(const char* path = nullptr);

  const Functions* operator->() const { return &functions_; }

  // The result of one of the functions as a value; `call` names it in the error.
  DriverResult<void> Check(CuResult code, const char* call) const;

 private:
  Functions functions_;
};

// Makes a context current on this thread for a scope, and then the one from before.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CuContext context) : driver_(driver) {
    driver_->ContextGetCurrent(&before_);
    if (before_ != context) driver_->ContextSetCurrent(context);
  }
  ~CurrentContext() {
    CuContext now = nullptr;
    driver_->ContextGetCurrent(&now);
    if (now != before_) driver_->ContextSetCurrent(before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  CuContext before_ = nullptr;
};

// Lets this thread, for a scope, ask for events and streams while another thread captures one: in
// the strictest mode of capturing, which is the runtime's default, such a question breaks it.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(const CudaDriver& driver) : driver_(driver) {
    driver_->ThreadExchangeCaptureMode(&mode_);
  }
  ~RelaxedCaptureMode() { driver_->ThreadExchangeCaptureMode(&mode_); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const CudaDriver& driver_;
  CuStreamCaptureMode mode_ = kCuCaptureRelaxed;  // then the one from before
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_CUDA_DRIVER_H_
