#include "core/base/counted.h"

#include "fmt/format.h"

namespace cotune {

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace cotune
