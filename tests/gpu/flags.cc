#include "tests/gpu/flags.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fmt/format.h"

namespace cotune::gputest {

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<Flags> Flags::Parse(int argc, char** argv, int first) {
  Flags flags;
  for (int i = first; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--") || i + 1 == argc) {
      return Fail(ErrorCode::kUsage, fmt::format("'{}' is no flag with a value", name));
    }
    flags.values_[std::string(name.substr(2))] = argv[i + 1];
  }
  return flags;
}

std::string Flags::Text(const std::string& name, const std::string& fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

int64_t Flags::Number(const std::string& name, int64_t fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : std::strtoll(found->second.c_str(), nullptr, 10);
}

std::vector<std::string> Flags::List(const std::string& name, const std::string& fallback) const {
  return SplitAt(Text(name, fallback), ',');
}

}  // namespace cotune::gputest
