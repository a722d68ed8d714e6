// A driver with one GPU. Where a test says so its streams do not come to an end, and what would
// wait for them without a deadline ends the process. It counts what is captured.
#include <stdlib.h>

#include <atomic>
#include <cstdio>

#include "gpu/driver/cuda_driver.h"

using namespace cotune::gpu;  // NOLINT: the functions below are the driver's names

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
__attribute__((visibility("default"))) std::atomic<bool> stalled_driver_is_stalled{false};
__attribute__((visibility("default"))) std::atomic<int> stalled_driver_captures{0};
__attribute__((visibility("default"))) std::atomic<int> stalled_driver_graph_launches{0};
// Memory of the host that the GPU maps: there is one allocation.
__attribute__((visibility("default"))) unsigned long long stalled_driver_host_words[2] = {};
}

namespace {

CuResult Ask() { return stalled_driver_is_stalled ? kCuErrorNotReady : kCuSuccess; }

CuResult Wait(const char* call) {
  if (stalled_driver_is_stalled) {
    fprintf(stderr, "%s would wait for ever\n", call);
    abort();
  }
  return kCuSuccess;
}

}  // namespace

EXPORT CuResult cuDeviceGetCount(int* count) {
  *count = 1;
  return kCuSuccess;
}

EXPORT CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute, CuDevice) {
  *value = 1;
  return kCuSuccess;
}

EXPORT CuResult cuMemGetAllocationGranularity(size_t* bytes, const CuMemAllocationProperties*,
                                              CuMemGranularity) {
  *bytes = 4096;
  return kCuSuccess;
}

EXPORT CuResult cuMemAddressReserve(CuDevicePointer* pointer, size_t, size_t, CuDevicePointer,
                                    unsigned long long) {
  *pointer = CuDevicePointer{2} << 40;
  return kCuSuccess;
}

EXPORT CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t) {
  *pointer = CuDevicePointer{1} << 40;
  return kCuSuccess;
}

EXPORT CuResult cuMemHostAlloc(void** pointer, size_t, unsigned int) {
  *pointer = stalled_driver_host_words;
  return kCuSuccess;
}

EXPORT CuResult cuStreamBeginCapture_v2(CuStream, CuStreamCaptureMode) {
  ++stalled_driver_captures;
  return kCuSuccess;
}

EXPORT CuResult cuGraphLaunch(CuGraphExec, CuStream) {
  ++stalled_driver_graph_launches;
  return kCuSuccess;
}

EXPORT CuResult cuStreamQuery(CuStream) { return Ask(); }
EXPORT CuResult cuEventQuery(CuEvent) { return Ask(); }
// On a thread of its own it may wait: for the moment that the test lets it go.
EXPORT CuResult cuCtxSynchronize() {
  while (stalled_driver_is_stalled) {
    stalled_driver_is_stalled.wait(true);
  }
  return kCuSuccess;
}
// All that frees memory waits for the whole GPU.
EXPORT CuResult cuMemUnmap(CuDevicePointer, size_t) { return Wait("cuMemUnmap"); }
EXPORT CuResult cuMemFree_v2(CuDevicePointer) { return Wait("cuMemFree"); }
EXPORT CuResult cuMemFreeHost(void*) { return Wait("cuMemFreeHost"); }
EXPORT CuResult cuModuleUnload(CuModule) { return Wait("cuModuleUnload"); }
EXPORT CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return Wait("cuDevicePrimaryCtxRelease"); }
EXPORT CuResult cuStreamSynchronize(CuStream) { return Wait("cuStreamSynchronize"); }
// Those without a stream wait for the default stream, and with it for what others put there.
EXPORT CuResult cuMemcpyHtoD_v2(CuDevicePointer, const void*, size_t) {
  return Wait("cuMemcpyHtoD");
}
EXPORT CuResult cuMemcpyDtoH_v2(void*, CuDevicePointer, size_t) { return Wait("cuMemcpyDtoH"); }
// Memory of the host that is not pinned is copied when the stream has come to it.
EXPORT CuResult cuMemcpyHtoDAsync_v2(CuDevicePointer, const void*, size_t, CuStream) {
  return Wait("cuMemcpyHtoDAsync");
}
EXPORT CuResult cuMemcpyDtoHAsync_v2(void*, CuDevicePointer, size_t, CuStream) {
  return Wait("cuMemcpyDtoHAsync");
}
