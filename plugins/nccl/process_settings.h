// The settings that NCCL reads once from the environment of the process, and those that this
// backend needs there.
#ifndef COTUNE_PLUGINS_NCCL_PROCESS_SETTINGS_H_
#define COTUNE_PLUGINS_NCCL_PROCESS_SETTINGS_H_

#include <string>

#include "plugins/sdk/failure.h"

namespace cotune::nccl {

// Turns NVLink multicast off and names this library as NCCL's tuner, where the variables are not
// set. To be called before NCCL is used; NCCL has no other interface for either. The answer: why
// NCCL will not ask this library's tuner, "" when it will. COTUNE_UNSUPPORTED: the user has
// switched multicast on, which is never used.
sdk::Result<std::string> ApplyProcessSettings();

// The decision behind it. A value that is not set is null.
struct ProcessSettings {
  const char* nvls_enable;
  const char* tuner_plugin;
};
struct SettingsDecision {
  bool sets_nvls_enable = false;
  bool sets_tuner_plugin = false;
  std::string why_no_tuner;
};
sdk::Result<SettingsDecision> DecideSettings(const ProcessSettings& present,
                                             const std::string& tuner_path);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_PROCESS_SETTINGS_H_
