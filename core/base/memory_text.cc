#include "core/base/memory_text.h"

#include <array>
#include <cstddef>

#include "fmt/format.h"

namespace cotune {

std::string MemoryText(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double number = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (number >= 1024 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", number, kUnits[unit]);
}

}  // namespace cotune
