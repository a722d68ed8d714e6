#include "core/base/boot_id.h"

#include <fstream>

namespace cotune {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace cotune
