#include "plugins/nccl/process_settings.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <string_view>

#include "plugins/nccl/nccl_tuner.h"

namespace cotune::nccl {
namespace {

constexpr char kNvlsEnable[] = "NCCL_NVLS_ENABLE";
constexpr char kTunerPlugin[] = "NCCL_TUNER_PLUGIN";

}  // namespace

sdk::Result<SettingsDecision> DecideSettings(const ProcessSettings& present,
                                             const std::string& tuner_path) {
  SettingsDecision decision;
  if (present.nvls_enable == nullptr) {
    decision.sets_nvls_enable = true;
  } else if (std::string_view(present.nvls_enable) != "0") {
    return sdk::Fail(COTUNE_UNSUPPORTED,
                     fmt::format("{}={}: cotune never uses NVLink multicast; set it to 0 or "
                                 "unset it",
                                 kNvlsEnable, present.nvls_enable));
  }
  if (!tuner_path.ends_with(".so")) {
    decision.why_no_tuner = "the backend is part of a program, and NCCL's tuner must be a library";
  } else if (present.tuner_plugin == nullptr) {
    decision.sets_tuner_plugin = true;
  } else if (present.tuner_plugin != tuner_path) {
    decision.why_no_tuner =
        fmt::format("{} names another tuner, {:.60}; unset it", kTunerPlugin, present.tuner_plugin);
  }
  return decision;
}

sdk::Result<std::string> ApplyProcessSettings() {
  const std::string path = TunerLibraryPath();
  COTUNE_TRY(auto decision, DecideSettings({getenv(kNvlsEnable), getenv(kTunerPlugin)}, path));
  constexpr int kKeepWhatIsThere = 0;
  if (decision.sets_nvls_enable) setenv(kNvlsEnable, "0", kKeepWhatIsThere);
  if (decision.sets_tuner_plugin) setenv(kTunerPlugin, path.c_str(), kKeepWhatIsThere);
  return decision.why_no_tuner;
}

}  // namespace cotune::nccl
