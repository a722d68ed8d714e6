#include "integration/fingerprint.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/sha256.h"

namespace cotune {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int NumaNodes() {
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 4 && name.starts_with("node") &&
        name.find_first_not_of("0123456789", 4) == std::string::npos)
      ++nodes;
  }
  return nodes > 0 ? nodes : 1;
}

}  // namespace

std::map<std::string, std::string> MachineFields() {
  utsname system{};
  uname(&system);
  return {{"architecture", system.machine},
          {"cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
          {"cpu_model", CpuModel()},
          {"numa_nodes", std::to_string(NumaNodes())}};
}

uint64_t TopologyDigest(const std::map<std::string, std::string>& machine) {
  std::string text;
  for (const auto& [name, value] : machine) {
    text.append(name).append("=").append(value).append("\n");
  }
  return Sha256Prefix(text);
}

}  // namespace cotune
