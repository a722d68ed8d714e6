// A management library that knows one GPU. With FAKE_NVML_IS_OLD it lacks what came later.
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
int the_gpu = 0;
}

EXPORT int nvmlInit_v2() { return 0; }

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (std::strcmp(bus_id, "0000:1A:00.0") != 0) return 6;  // not found
  *device = &the_gpu;
  return 0;
}

#ifndef FAKE_NVML_IS_OLD
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-00000000-0000-0000-0000-00000000001a") != 0) return 6;
  *device = &the_gpu;
  return 0;
}

EXPORT int nvmlDeviceGetClockInfo(void* device, int kind, unsigned int* mhz) {
  if (device != &the_gpu) return 2;  // invalid argument
  *mhz = kind == 1 ? 1980 : 0;
  return 0;
}

// Idle, a clock that was set, and two that throttle.
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  if (device != &the_gpu) return 2;
  *reasons = 0x1 | 0x2 | 0x4 | 0x40;
  return 0;
}
#endif
