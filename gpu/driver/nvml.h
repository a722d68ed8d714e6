// NVIDIA's management library, found at run time: links between GPUs, clocks and what slows them.
#ifndef COTUNE_GPU_DRIVER_NVML_H_
#define COTUNE_GPU_DRIVER_NVML_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// How fast a GPU runs at a moment, and why not faster.
struct ClockState {
  int32_t sm_mhz = 0;
  uint64_t reasons = 0;  // NVML's bits
};

// Short stable names of what throttles, ascending: "hw_power_brake", "hw_slowdown", "hw_thermal",
// "sw_power_cap", "sw_thermal", "sync_boost". Idle is none, nor is a clock that somebody has set.
std::vector<std::string> ThrottleNames(uint64_t reasons);

// Its functions have kept their types since they came; those that an older library lacks answer
// nothing. Any thread; copies are cheap; never unloaded.
class Nvml {
 public:
  // Opens `path`, or the system's libnvidia-ml.so.1, and initialises it.
  static DriverResult<Nvml> Open(const char* path = nullptr);

  // The GPU at this PCI address; it stays valid. nullptr: not known to the library.
  void* Handle(const std::string& bus_id) const;
  // The same by its UUID, as Uuid gives it; nullptr also if the library is too old.
  void* HandleOfUuid(const std::string& uuid) const;
  // The number of active NVLink links of this GPU.
  int ActiveLinks(void* device) const;
  // nullopt: not known.
  std::optional<bool> JoinedByNvlink(void* one, void* other) const;
  std::optional<ClockState> ReadClocks(void* device) const;

 private:
  int (*init_)() = nullptr;
  int (*handle_)(const char* bus_id, void** device) = nullptr;
  int (*handle_of_uuid_)(const char* uuid, void** device) = nullptr;
  int (*link_state_)(void* device, unsigned int link, int* is_active) = nullptr;
  int (*p2p_status_)(void* one, void* other, int capability, int* status) = nullptr;
  int (*clock_)(void* device, int kind, unsigned int* mhz) = nullptr;
  int (*reasons_)(void* device, unsigned long long* reasons) = nullptr;
};

// The PCI address of a GPU as the driver writes it; "": not known.
std::string PciBusId(const CudaDriver& driver, int ordinal);

// "GPU-01234567-89ab-cdef-0123-456789abcdef", as NVML and nvidia-smi write it; "": not known.
std::string Uuid(const CudaDriver& driver, int ordinal);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_NVML_H_
