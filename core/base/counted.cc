#include "core/base/counted.h"

#include "fmt/format.h"

namespace cotune {

std::string Counted(int64_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  if (noun.ends_with("ry")) return fmt::format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}s", count, noun);
}

std::string NumbersText(const std::vector<int>& numbers) {
  constexpr size_t kListedMax = 8;
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const bool is_range = end - begin > kListedMax;
    if (!is_range) end = begin + 1;
    text += text.empty() ? "" : ", ";
    text += is_range ? fmt::format("{}-{}", numbers[begin], numbers[end - 1])
                     : fmt::format("{}", numbers[begin]);
    begin = end;
  }
  return text;
}

}  // namespace cotune
