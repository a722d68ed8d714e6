// The variables that keep NVLink multicast off in libraries that would use it by themselves.
#ifndef COTUNE_INTEGRATION_MULTICAST_SWITCHES_H_
#define COTUNE_INTEGRATION_MULTICAST_SWITCHES_H_

#include <array>
#include <string>

#include "integration/launch_context.h"

namespace cotune {

struct MulticastSwitch {
  const char* name;
  const char* value;  // that switches it off
};
inline constexpr std::array<MulticastSwitch, 3> kMulticastSwitches = {
    {{"NCCL_NVLS_ENABLE", "0"},
     {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
     {"NVSHMEM_DISABLE_NVLS", "1"}}};

// Sets them in this process, and so in every process that it starts. To be called before there are
// other threads.
void KeepMulticastOff();

// Names the variables that the user has set to something else: "NCCL_NVLS_ENABLE=1 becomes 0, ...:
// NVLink multicast is never used". "" when there is nothing to say.
std::string OverriddenSwitchesText(const Environment& environment);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_MULTICAST_SWITCHES_H_
