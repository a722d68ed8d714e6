#include "plugins/cuda/testing/fake_driver.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/driver/cuda_driver.h"

using cotune::cuda::FakeOperation;
using namespace cotune::gpu;  // NOLINT: the functions below are the driver's names

namespace {

cotune::cuda::FakeDriverState& State() { return *fake_driver_state(); }

CuResult Freed(std::atomic<int>& objects) {
  if (State().is_busy) ++State().freed_while_busy;
  --objects;
  return kCuSuccess;
}

CuResult Enqueue(const FakeOperation& operation) {
  constexpr CuResult kSomeFailure = 999;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int& before_failure = State().operations_before_failure;
  if (before_failure >= 0 && before_failure-- == 0) return kSomeFailure;
  auto& operations = State().operations;
  size_t& count = State().operation_count;
  if (count < operations.size()) operations[count] = operation;
  ++count;
  return kCuSuccess;
}

}  // namespace

cotune::cuda::FakeDriverState* fake_driver_state() {
  static auto* state = new cotune::cuda::FakeDriverState;
  return state;
}

extern "C" {

COTUNE_EXPORT CuResult cuGetErrorName(CuResult, const char** text) {
  *text = "CUDA_ERROR_FAKE";
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "a fake error";
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDeviceGetCount(int* count) {
  *count = 1;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  *device = ordinal;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute id, CuDevice) {
  *value = id == kCuComputeCapabilityMajor ? 9 : 0;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  *context = reinterpret_cast<CuContext>(uintptr_t{1});
  ++State().contexts;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return Freed(State().contexts); }

COTUNE_EXPORT CuResult cuCtxGetCurrent(CuContext* context) {
  *context = nullptr;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuCtxSynchronize() {
  ++State().waits;
  ++State().waiting;
  State().waiting.notify_all();
  State().is_busy.wait(true);
  --State().waiting;
  State().waiting.notify_all();
  return State().wait_result;
}

COTUNE_EXPORT CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t) {
  if (State().is_full) return kCuErrorOutOfMemory;
  static std::atomic<CuDevicePointer> next{0};
  *pointer = next += CuDevicePointer{1} << 40;
  ++State().allocated;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuMemFree_v2(CuDevicePointer) { return Freed(State().allocated); }

COTUNE_EXPORT CuResult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int) {
  // Memory that is never freed is no leak of the test's.
  static std::mutex mutex;
  static auto* const blocks = new std::vector<std::unique_ptr<char[]>>;
  const std::lock_guard lock(mutex);
  blocks->push_back(std::make_unique<char[]>(bytes));
  *pointer = blocks->back().get();
  ++State().host_allocated;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuMemFreeHost(void*) { return Freed(State().host_allocated); }

COTUNE_EXPORT CuResult cuMemHostGetDevicePointer_v2(CuDevicePointer* on_device, void* pointer,
                                                    unsigned int) {
  *on_device = reinterpret_cast<CuDevicePointer>(pointer);
  return kCuSuccess;
}

// Every address lies in memory that can be registered.
COTUNE_EXPORT CuResult cuMemGetAddressRange_v2(CuDevicePointer* base, size_t* bytes,
                                               CuDevicePointer pointer) {
  *base = pointer;
  *bytes = SIZE_MAX;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction, void** parameters,
                                        void**) {
  ++State().kernels;
  const auto label_of = State().label_of_kernel;
  State().last_blocks = config->grid_x;
  return Enqueue({.kind = FakeOperation::Kind::kKernel,
                  .stream = config->stream,
                  .label = label_of == nullptr ? 0 : label_of(parameters)});
}

COTUNE_EXPORT CuResult cuMemcpyDtoDAsync_v2(CuDevicePointer to, CuDevicePointer, size_t bytes,
                                            CuStream stream) {
  ++State().copies;
  return Enqueue({.kind = FakeOperation::Kind::kCopy, .stream = stream, .to = to, .bytes = bytes});
}

COTUNE_EXPORT CuResult cuStreamCreate(CuStream* stream, unsigned int) {
  static std::atomic<uintptr_t> next{1};
  *stream = reinterpret_cast<CuStream>(++next);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuEventCreate(CuEvent* event, unsigned int) {
  static std::atomic<uintptr_t> next{1};
  *event = reinterpret_cast<CuEvent>(++next);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuEventRecord(CuEvent event, CuStream stream) {
  return Enqueue({.kind = FakeOperation::Kind::kRecord, .stream = stream, .event = event});
}

COTUNE_EXPORT CuResult cuStreamWaitEvent(CuStream stream, CuEvent event, unsigned int) {
  return Enqueue({.kind = FakeOperation::Kind::kWait, .stream = stream, .event = event});
}

COTUNE_EXPORT CuResult cuStreamGetCaptureInfo_v2(CuStream, CuStreamCaptureStatus* status,
                                                 unsigned long long* id, CuGraph*, const void**,
                                                 size_t*) {
  *status = State().capture == 0 ? kCuCaptureNone : kCuCaptureActive;
  *id = State().capture;
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuUserObjectCreate(CuUserObject*, void* data, CuHostFunction destroy,
                                          unsigned int, unsigned int) {
  State().held_by_graphs.emplace_back(data, destroy);
  return kCuSuccess;
}

COTUNE_EXPORT CuResult cuMemcpyDtoHAsync_v2(void* to, CuDevicePointer, size_t bytes, CuStream) {
  std::memcpy(to, State().words_on_device.data(), std::min(bytes, sizeof(State().words_on_device)));
  return kCuSuccess;
}

}  // extern "C"
