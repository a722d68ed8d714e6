#include "integration/multicast_switches.h"

#include <stdlib.h>

#include "fmt/format.h"

namespace cotune {

void KeepMulticastOff() {
  for (const auto& [name, value] : kMulticastSwitches) setenv(name, value, 1);
}

std::string OverriddenSwitchesText(const Environment& environment) {
  std::string changes;
  for (const auto& [name, value] : kMulticastSwitches) {
    const auto set = environment.find(name);
    if (set == environment.end() || set->second == value) continue;
    changes +=
        fmt::format("{}{}={} becomes {}", changes.empty() ? "" : ", ", name, set->second, value);
  }
  return changes.empty() ? "" : changes + ": NVLink multicast is never used";
}

}  // namespace cotune
