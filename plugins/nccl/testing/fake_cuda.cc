#include "plugins/nccl/testing/fake_cuda.h"

#include <stdlib.h>

#include <cstdint>
#include <utility>

#include "gpu/driver/cuda_driver.h"

using namespace cotune::gpu;  // NOLINT: the functions below are the driver's names

namespace {

cotune::nccl::FakeCudaState& State() { return *fake_cuda_state(); }

// Not allocated at the first use: TSan takes it for a race when glibc frees that of an ended
// thread.
#define COTUNE_STATIC_TLS __attribute__((tls_model("initial-exec")))
thread_local CuContext current_context COTUNE_STATIC_TLS = nullptr;
thread_local CuStreamCaptureMode capture_mode COTUNE_STATIC_TLS = kCuCaptureGlobal;

// An event is the number of its latest record.
std::atomic<int>& NumberOf(CuEvent event) { return *reinterpret_cast<std::atomic<int>*>(event); }

template <typename Handle>
CuResult NewHandle(Handle* handle) {
  *handle = reinterpret_cast<Handle>(malloc(1));
  ++State().objects;
  return kCuSuccess;
}

CuResult FreeHandle(void* handle) {
  free(handle);
  --State().objects;
  return kCuSuccess;
}

CuResult Progress() { return State().is_busy ? kCuErrorNotReady : kCuSuccess; }

}  // namespace

cotune::nccl::FakeCudaState* fake_cuda_state() {
  static auto* state = new cotune::nccl::FakeCudaState;
  return state;
}

extern "C" {

COTUNE_EXPORT CuResult cuGetErrorName(CuResult code, const char** text) {
  *text = code == kCuErrorNotReady ? "CUDA_ERROR_NOT_READY" : "CUDA_ERROR_FAKE";
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "a fake error";
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDeviceGetCount(int* count) {
  *count = State().gpus;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  *device = ordinal;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice device) {
  ++State().contexts_held;
  *context = reinterpret_cast<CuContext>(static_cast<uintptr_t>(device) + 1);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) {
  --State().contexts_held;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuCtxSetCurrent(CuContext context) {
  current_context = context;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuCtxGetCurrent(CuContext* context) {
  *context = current_context;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t bytes) {
  *pointer = reinterpret_cast<CuDevicePointer>(malloc(bytes));
  ++State().objects;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuMemFree_v2(CuDevicePointer pointer) {
  return FreeHandle(reinterpret_cast<void*>(pointer));
}

COTUNE_EXPORT CuResult cuPointerGetAttribute(void* data, CuPointerAttribute id,
                                             CuDevicePointer pointer) {
  const bool is_exportable = reinterpret_cast<const void*>(pointer) == State().exportable;
  if (id == kCuPointerAllowedHandleTypes && is_exportable) *static_cast<uint64_t*>(data) = 1;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuStreamCreate(CuStream* stream, unsigned int) { return NewHandle(stream); }
COTUNE_EXPORT CuResult cuStreamDestroy_v2(CuStream stream) { return FreeHandle(stream); }
COTUNE_EXPORT CuResult cuStreamQuery(CuStream) { return Progress(); }

COTUNE_EXPORT CuResult cuStreamIsCapturing(CuStream, CuStreamCaptureStatus* status) {
  *status = State().is_capturing ? kCuCaptureActive : kCuCaptureNone;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuStreamGetCaptureInfo_v2(CuStream, CuStreamCaptureStatus* status,
                                                 unsigned long long* id, CuGraph*, const void**,
                                                 size_t*) {
  *status = State().is_capturing ? kCuCaptureActive : kCuCaptureNone;
  *id = ++State().captures;
  return kCuSuccess;
}

// The graph of the capture takes it at once: cuGraphRetainUserObject adds nothing.
COTUNE_EXPORT CuResult cuUserObjectCreate(CuUserObject*, void* data, CuHostFunction destroy,
                                          unsigned int, unsigned int) {
  const std::lock_guard lock(State().mutex);
  State().held_by_graphs.emplace_back(destroy, data);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuThreadExchangeStreamCaptureMode(CuStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuEventCreate(CuEvent* event, unsigned int) {
  *event = reinterpret_cast<CuEvent>(new std::atomic<int>{0});
  ++State().objects;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuEventDestroy_v2(CuEvent event) {
  delete &NumberOf(event);
  --State().objects;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuEventQuery(CuEvent event) {
  if (capture_mode != kCuCaptureRelaxed) ++State().unsafe_queries;
  const bool is_complete = NumberOf(event) <= State().records_complete;
  ++State().event_queries;
  State().event_queries.notify_all();
  return is_complete ? Progress() : kCuErrorNotReady;
}

COTUNE_EXPORT CuResult cuEventRecord(CuEvent event, CuStream) {
  NumberOf(event) = ++State().events_recorded;
  return kCuSuccess;
}

}  // extern "C"
