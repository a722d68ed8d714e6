#include "plugins/sdk/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace cotune::sdk {
namespace {

// Empty for what is no size, and for sizes beyond `largest`.
std::optional<uint64_t> ParseBytes(std::string_view text, uint64_t largest) {
  int shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (shift > 0) text.remove_suffix(1);
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number > largest >> shift) {
    return std::nullopt;
  }
  return number << shift;
}

}  // namespace

Settings::Settings(const cotune_host_t& host, std::string backend)
    : host_(host), backend_(std::move(backend)) {}

std::optional<std::string> Settings::Text(const char* key) const {
  const char* text = host_.setting == nullptr ? nullptr : host_.setting(host_.context, key);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

Result<bool> Settings::Switch(const char* key, bool otherwise) const {
  const auto text = Text(key);
  if (!text) return otherwise;
  if (*text == "on" || *text == "1") return true;
  if (*text == "off" || *text == "0") return false;
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("setting {}.{} is '{:.40}'; give 'on' or 'off'", backend_, key, *text));
}

Result<uint64_t> Settings::Bytes(const char* key, uint64_t otherwise,
                                 const ByteRange& range) const {
  const auto text = Text(key);
  if (!text) return otherwise;
  const auto bytes = ParseBytes(*text, range.largest);
  if (!bytes || *bytes < range.smallest || *bytes % range.multiple_of != 0) {
    return Fail(
        COTUNE_INVALID_ARGUMENT,
        fmt::format("setting {}.{} is '{:.40}'; give a multiple of {} from {} to {}", backend_, key,
                    *text, range.multiple_of, range.smallest, range.largest));
  }
  return *bytes;
}

}  // namespace cotune::sdk
