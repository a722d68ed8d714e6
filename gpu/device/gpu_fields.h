// The facts about GPUs under which a measurement is valid.
#ifndef COTUNE_GPU_DEVICE_GPU_FIELDS_H_
#define COTUNE_GPU_DEVICE_GPU_FIELDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "core/base/status.h"

namespace cotune::gpu {

// The GPUs that this process sees; 0 without a driver.
int VisibleGpus();

// Fields of a fingerprint, equal on all ranks of a machine with GPUs of one kind: model, compute
// capability, multiprocessors, driver, and which pairs of the visible GPUs reach each other's
// memory. kEnvironment: no driver or no such GPU.
Result<std::map<std::string, std::string>> GpuFields(int32_t ordinal);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_GPU_FIELDS_H_
