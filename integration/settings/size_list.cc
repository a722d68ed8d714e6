#include "integration/settings/size_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::string_view kSuffixes = "KMGT";

// Reads one text from the left; every failure points at a position in it.
class SizeReader {
 public:
  explicit SizeReader(std::string_view text) : text_(text) {}

  bool at_end() const { return position_ == text_.size(); }
  size_t position() const { return position_; }

  bool Skip(char expected) {
    if (at_end() || text_[position_] != expected) return false;
    ++position_;
    return true;
  }

  // Digits only: a size without its suffix, or a factor.
  Result<uint64_t> Number() {
    const size_t begin = position_;
    uint64_t number = 0;
    while (!at_end() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0) {
      number = number * 10 + static_cast<uint64_t>(text_[position_] - '0');
      if (number > kSizeBytesMax) return FailAt(begin, "the largest size is 1T");
      ++position_;
    }
    if (position_ == begin) return FailAt(begin, at_end() ? "a number is missing" : Unexpected());
    return number;
  }

  Result<uint64_t> Size() {
    const size_t begin = position_;
    Result<uint64_t> number = Number();
    if (!number) return number;
    uint64_t unit = 1;
    if (!at_end() && std::isalpha(static_cast<unsigned char>(text_[position_])) != 0) {
      const int letter = std::toupper(static_cast<unsigned char>(text_[position_]));
      const size_t index = kSuffixes.find(static_cast<char>(letter));
      if (index == std::string_view::npos) {
        return FailAt(position_,
                      fmt::format("unknown suffix '{}'; known: K, M, G, T", text_[position_]));
      }
      unit = uint64_t{1} << (10 * (index + 1));
      ++position_;
    }
    if (*number > kSizeBytesMax / unit) return FailAt(begin, "the largest size is 1T");
    return *number * unit;
  }

  tl::unexpected<Error> FailAt(size_t position, std::string cause) const {
    return Fail(ErrorCode::kUsage, fmt::format("\"{}\" is not a list of sizes", text_),
                fmt::format("character {}", position + 1), std::move(cause),
                "write for example 64K, 1K:16M:x2, 1K:64K:+4K or 1K,3M,100");
  }

  std::string Unexpected() const { return fmt::format("unexpected '{}'", text_[position_]); }

 private:
  std::string_view text_;
  size_t position_ = 0;
};

// From one size to the next inside a range.
struct Step {
  uint64_t factor = 1;
  uint64_t bytes = 0;
};

Result<Step> ReadStep(SizeReader& reader) {
  if (!reader.Skip(':')) return Step{2, 0};
  const size_t begin = reader.position();
  if (reader.Skip('x')) {
    COTUNE_TRY(const uint64_t factor, reader.Number());
    if (factor < 2) return reader.FailAt(begin + 1, "a factor is 2 or more");
    return Step{factor, 0};
  }
  if (reader.Skip('+')) {
    COTUNE_TRY(const uint64_t bytes, reader.Size());
    if (bytes < 1) return reader.FailAt(begin + 1, "a step is 1 or more");
    return Step{1, bytes};
  }
  return reader.FailAt(begin, "a range's step begins with x (a factor) or + (a number)");
}

Status ReadPart(SizeReader& reader, std::vector<uint64_t>& sizes) {
  const size_t begin = reader.position();
  COTUNE_TRY(const uint64_t first, reader.Size());
  uint64_t last = first;
  Step step{2, 0};
  if (reader.Skip(':')) {
    const size_t last_begin = reader.position();
    COTUNE_TRY(const uint64_t read, reader.Size());
    last = read;
    if (last < first) return reader.FailAt(last_begin, "the range ends before it begins");
    COTUNE_TRY(const Step read_step, ReadStep(reader));
    step = read_step;
    if (first == 0 && step.factor > 1 && last > 0) {
      return reader.FailAt(begin, "a range with a factor cannot begin at 0");
    }
  }
  uint64_t size = first;
  while (true) {
    if (sizes.size() == kSizesMax) {
      return reader.FailAt(begin, fmt::format("this makes more than {} sizes", kSizesMax));
    }
    sizes.push_back(size);
    // Neither product nor sum overflows: sizes are at most 2^40 and so are steps; factors are
    // divided by.
    if (size == last || (step.factor > 1 && size > last / step.factor)) return {};
    size = size * step.factor + step.bytes;
    if (size > last) return {};
  }
}

}  // namespace

Result<std::vector<uint64_t>> ParseSizes(std::string_view text) {
  SizeReader reader(text);
  std::vector<uint64_t> sizes;
  while (true) {
    COTUNE_RETURN_IF_ERROR(ReadPart(reader, sizes));
    if (reader.at_end()) break;
    if (!reader.Skip(',')) return reader.FailAt(reader.position(), reader.Unexpected());
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Result<uint64_t> ParseSizeBytes(std::string_view text) {
  SizeReader reader(text);
  Result<uint64_t> size = reader.Size();
  if (!size) return size;
  if (!reader.at_end()) return reader.FailAt(reader.position(), reader.Unexpected());
  return size;
}

std::string FormatSizeBytes(uint64_t bytes) {
  if (bytes == 0) return "0";
  std::string suffix;
  for (const char letter : kSuffixes) {
    if (bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = letter;
  }
  return fmt::format("{}{}", bytes, suffix);
}

std::string FormatSizes(const std::vector<uint64_t>& sizes_bytes) {
  std::string text;
  for (size_t begin = 0; begin < sizes_bytes.size();) {
    size_t end = begin + 1;
    while (end < sizes_bytes.size() && sizes_bytes[begin] > 0 &&
           sizes_bytes[end] == 2 * sizes_bytes[end - 1]) {
      ++end;
    }
    if (!text.empty()) text += ",";
    text += FormatSizeBytes(sizes_bytes[begin]);
    // Two sizes are clearer as a list.
    if (end - begin < 3) {
      end = begin + 1;
    } else {
      text += fmt::format(":{}:x2", FormatSizeBytes(sizes_bytes[end - 1]));
    }
    begin = end;
  }
  return text;
}

}  // namespace cotune
