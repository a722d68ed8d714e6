#include "core/base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace cotune {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number at the front of the text, behind blanks.
std::optional<uint64_t> NumberAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The number behind `name` at the start of a line.
std::optional<uint64_t> NumberNamed(std::string_view name, std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.starts_with(name)) return NumberAt(line.substr(name.size()));
    begin = end + 1;
  }
  return std::nullopt;
}

// The folder of this process's control group; "" when there is none of version 2.
std::string GroupFolder() {
  const std::string text = TextOf("/proc/self/cgroup");
  const size_t at = text.find("0::/");
  if (at == std::string::npos) return "";
  const size_t end = std::min(text.find('\n', at), text.size());
  return "/sys/fs/cgroup" + text.substr(at + 3, end - at - 3);
}

}  // namespace

std::optional<uint64_t> ParseMemAvailable(std::string_view meminfo) {
  const std::optional<uint64_t> kilobytes = NumberNamed("MemAvailable:", meminfo);
  if (!kilobytes) return std::nullopt;
  return *kilobytes * 1024;
}

std::optional<uint64_t> ParseGroupAvailable(std::string_view max, std::string_view current,
                                            std::string_view stat) {
  const std::optional<uint64_t> limit = NumberAt(max);  // "max": none
  const std::optional<uint64_t> used = NumberAt(current);
  if (!limit || !used) return std::nullopt;
  uint64_t reclaimable = 0;
  for (const std::string_view name : {"inactive_file ", "active_file ", "slab_reclaimable "}) {
    reclaimable += NumberNamed(name, stat).value_or(0);
  }
  const uint64_t in_use = *used - std::min(*used, reclaimable);
  return *limit - std::min(*limit, in_use);
}

std::optional<uint64_t> AvailableHostBytes() {
  const std::optional<uint64_t> machine = ParseMemAvailable(TextOf("/proc/meminfo"));
  const std::string folder = GroupFolder();
  if (folder.empty()) return machine;
  const std::optional<uint64_t> group =
      ParseGroupAvailable(TextOf(folder + "/memory.max"), TextOf(folder + "/memory.current"),
                          TextOf(folder + "/memory.stat"));
  if (!group || !machine) return group ? group : machine;
  return std::min(*machine, *group);
}

}  // namespace cotune
