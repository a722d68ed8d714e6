// Durations as a user writes them: "500ms", "30s", "1.5m".
#ifndef COTUNE_INTEGRATION_SETTINGS_DURATION_H_
#define COTUNE_INTEGRATION_SETTINGS_DURATION_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace cotune {

// A number, whole or with a fraction, and ns, us, ms, s, m or h; without a unit it is seconds.
// kUsage names what is wrong. At most 1000 hours.
Result<int64_t> ParseDurationNs(std::string_view text);

// The shortest exact form that ParseDurationNs reads back: "500ms", "30s", "5m".
std::string FormatDurationNs(int64_t duration_ns);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_DURATION_H_
