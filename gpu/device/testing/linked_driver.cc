// A driver with four GPUs of which 0 and 1, and 2 and 3, are joined by the faster link, and a
// management library that knows the same. Each thread stands for a process, which sees the GPUs
// that linked_driver_show names.
#include <cstring>
#include <string>
#include <vector>

#include "gpu/driver/cuda_driver.h"

using namespace cotune::gpu;  // NOLINT: the functions below are the driver's names

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kGpus = 4;
thread_local std::vector<int> visible = {0, 1, 2, 3};
int handles[kGpus];  // handles of the management library

bool AreNear(int one, int other) { return one / 2 == other / 2; }

}  // namespace

EXPORT void linked_driver_show(const int* gpus, size_t count) {
  visible.assign(gpus, gpus + count);
}

EXPORT CuResult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(visible.size());
  return kCuSuccess;
}

EXPORT CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  *device = ordinal;
  return kCuSuccess;
}

EXPORT CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice device) {
  std::memset(uuid, 0, sizeof(*uuid));
  uuid->bytes[15] = static_cast<unsigned char>(visible.at(static_cast<size_t>(device)));
  return kCuSuccess;
}

EXPORT CuResult cuDeviceGetP2PAttribute(int* value, CuP2pAttribute attribute, CuDevice from,
                                        CuDevice to) {
  if (attribute != kCuP2pPerformanceRank || from == to) return 1;  // invalid value
  const int one = visible.at(static_cast<size_t>(from));
  *value = AreNear(one, visible.at(static_cast<size_t>(to))) ? 0 : 1;
  return kCuSuccess;
}

EXPORT int nvmlInit_v2() { return 0; }

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char*, void**) { return 6; }  // not found

EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    if ("GPU-00000000-0000-0000-0000-00000000000" + std::to_string(gpu) != uuid) continue;
    *device = &handles[gpu];
    return 0;
  }
  return 6;
}

EXPORT int nvmlDeviceGetP2PStatus(void* one, void* other, int capability, int* status) {
  constexpr int kNvlink = 2;
  constexpr int kNotSupported = 3;
  if (capability != kNvlink) return 2;  // invalid argument
  const bool near = AreNear(static_cast<int>(static_cast<int*>(one) - handles),
                            static_cast<int>(static_cast<int*>(other) - handles));
  *status = near ? 0 : kNotSupported;
  return 0;
}
