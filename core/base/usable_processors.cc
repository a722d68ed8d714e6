#include "core/base/usable_processors.h"

#include <sched.h>

#include <bitset>
#include <charconv>
#include <string_view>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr size_t kProcessorsMax = 8192;  // what Linux is built for at most
using ProcessorSet = std::bitset<kProcessorsMax>;

// Takes a number off the front of `text`; false when there is none that names a processor.
bool TakeNumber(std::string_view& text, size_t& number) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || number >= kProcessorsMax) return false;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return true;
}

ProcessorSet Parse(std::string_view list) {
  ProcessorSet set;
  while (true) {
    size_t first = 0;
    if (!TakeNumber(list, first)) return {};
    size_t last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      if (!TakeNumber(list, last) || last < first) return {};
    }
    for (size_t processor = first; processor <= last; ++processor) set.set(processor);
    if (list.empty()) return set;
    if (!list.starts_with(',')) return {};
    list.remove_prefix(1);
  }
}

}  // namespace

std::string UsableProcessors() {
  cpu_set_t* const set = CPU_ALLOC(kProcessorsMax);
  const size_t bytes = CPU_ALLOC_SIZE(kProcessorsMax);
  CPU_ZERO_S(bytes, set);
  std::string list;
  if (sched_getaffinity(0, bytes, set) == 0) {
    for (size_t first = 0; first < kProcessorsMax; ++first) {
      if (!CPU_ISSET_S(first, bytes, set)) continue;
      size_t last = first;
      while (last + 1 < kProcessorsMax && CPU_ISSET_S(last + 1, bytes, set)) ++last;
      list += fmt::format("{}{}", list.empty() ? "" : ",", first);
      if (last > first) list += fmt::format("-{}", last);
      first = last;
    }
  }
  CPU_FREE(set);
  return list;
}

std::vector<size_t> ProcessorsIn(std::string_view list) {
  const ProcessorSet set = Parse(list);
  std::vector<size_t> processors;
  for (size_t each = 0; each < kProcessorsMax; ++each) {
    if (set.test(each)) processors.push_back(each);
  }
  return processors;
}

size_t CountDistinctProcessors(std::span<const std::string> lists) {
  ProcessorSet all;
  for (const std::string& list : lists) all |= Parse(list);
  return all.count();
}

}  // namespace cotune
