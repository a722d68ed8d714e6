#include "integration/settings/duration.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr int64_t kDurationNsMax = int64_t{1000} * 3600 * 1'000'000'000;

struct Unit {
  std::string_view name;
  int64_t ns;
};
constexpr std::array<Unit, 6> kUnits = {{{"ns", 1},
                                         {"us", 1'000},
                                         {"ms", 1'000'000},
                                         {"s", 1'000'000'000},
                                         {"m", 60'000'000'000},
                                         {"h", 3'600'000'000'000}}};

tl::unexpected<Error> NotADuration(std::string_view text, std::string cause) {
  return Fail(ErrorCode::kUsage, fmt::format("\"{}\" is not a duration", text), "",
              std::move(cause), "write a number and a unit, for example 500ms, 30s or 5m");
}

}  // namespace

Result<int64_t> ParseDurationNs(std::string_view text) {
  double number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, status] = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number)) {
    return NotADuration(text, "it does not begin with a number");
  }
  if (number < 0 || *begin == '-') return NotADuration(text, "it is negative");
  const std::string_view unit_name(rest, static_cast<size_t>(end - rest));
  int64_t unit_ns = unit_name.empty() ? 1'000'000'000 : 0;
  for (const Unit& unit : kUnits) {
    if (unit.name == unit_name) unit_ns = unit.ns;
  }
  if (unit_ns == 0) {
    return NotADuration(text,
                        fmt::format("unknown unit \"{}\"; known: ns, us, ms, s, m, h", unit_name));
  }
  const double duration_ns = number * static_cast<double>(unit_ns);
  if (duration_ns > static_cast<double>(kDurationNsMax)) {
    return NotADuration(text, "it is longer than 1000h");
  }
  return std::llround(duration_ns);
}

std::string FormatDurationNs(int64_t duration_ns) {
  if (duration_ns == 0) return "0s";
  const Unit* best = &kUnits[0];
  for (const Unit& unit : kUnits) {
    if (duration_ns % unit.ns == 0) best = &unit;
  }
  return fmt::format("{}{}", duration_ns / best->ns, best->name);
}

}  // namespace cotune
