#include "core/problem/problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "core/base/nearest_name.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// One entry of a list of language.h.
template <typename T>
struct Word {
  T value;
  std::string_view name;
};
struct DtypeWord {
  Dtype value;
  std::string_view name;
  uint64_t bytes;
  NumberKind kind;
};
struct CollectiveWord {
  Collective value;
  std::string_view name;
  bool reduces;
};

#define COTUNE_DTYPE(enumerator, code, name, bytes, kind) \
  DtypeWord{Dtype::enumerator, name, bytes, NumberKind::kind},
#define COTUNE_COLLECTIVE(enumerator, code, name, reduces) \
  CollectiveWord{Collective::enumerator, name, reduces},
#define COTUNE_REDUCTION(enumerator, code, name) Word<Reduction>{Reduction::enumerator, name},
constexpr std::array kDtypeWords = {COTUNE_DTYPES(COTUNE_DTYPE)};
constexpr std::array kCollectiveWords = {COTUNE_COLLECTIVES(COTUNE_COLLECTIVE)};
constexpr std::array kReductionWords = {COTUNE_REDUCTIONS(COTUNE_REDUCTION)};
#undef COTUNE_DTYPE
#undef COTUNE_COLLECTIVE
#undef COTUNE_REDUCTION

// The values of a list.
template <typename W, size_t n>
constexpr auto ValuesOf(const std::array<W, n>& words) {
  std::array<decltype(W::value), n> values{};
  for (size_t i = 0; i < n; ++i) values[i] = words[i].value;
  return values;
}
constexpr std::array kCollectives = ValuesOf(kCollectiveWords);
constexpr std::array kReductions = ValuesOf(kReductionWords);
constexpr std::array kValueDtypes = ValuesOf(kDtypeWords);
// Stored dtypes come last.
constexpr size_t kDtypeCount = static_cast<size_t>(
    std::count_if(kDtypeWords.begin(), kDtypeWords.end(),
                  [](const DtypeWord& word) { return word.kind != NumberKind::kStored; }));
constexpr auto kDtypes = [] {
  std::array<Dtype, kDtypeCount> values{};
  for (size_t i = 0; i < kDtypeCount; ++i) values[i] = kValueDtypes[i];
  return values;
}();

// Returns true if the codes of a list are 1, 2, 3 and so on.
template <typename W, size_t n>
constexpr bool IsNumbered(const std::array<W, n>& words) {
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(words[i].value) != i + 1) return false;
  }
  return true;
}
static_assert(IsNumbered(kDtypeWords) && IsNumbered(kCollectiveWords) &&
              IsNumbered(kReductionWords));

// The entry of a value; nullptr for a value that is none.
template <typename W, size_t n, typename T>
constexpr const W* FindWord(const std::array<W, n>& words, T value) {
  const size_t index = static_cast<size_t>(value) - 1;
  return index < n ? &words[index] : nullptr;
}

template <typename W, size_t n, typename T>
std::string_view NameIn(const std::array<W, n>& words, T value) {
  const W* const word = FindWord(words, value);
  return word == nullptr ? "invalid" : word->name;
}

constexpr std::array kBufferClasses = {BufferClass::kPlain, BufferClass::kSymmetric};

template <typename T, size_t n>
Result<T> ParseName(std::string_view text, const std::array<T, n>& values, const char* kind) {
  std::array<std::string_view, n> names;
  for (size_t i = 0; i < n; ++i) {
    names[i] = Name(values[i]);
    if (names[i] == text) return values[i];
  }
  return Fail(ErrorCode::kUsage, fmt::format("unknown {} '{}'", kind, text), "", "",
              KnownNamesText(text, names));
}

// Whether every rank's buffer holds one block for each rank.
bool HasBlockPerRank(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
         collective == Collective::kAllToAll;
}

// Reads "prefix" followed by a whole number that is all of the rest.
bool ParseAfter(std::string_view prefix, std::string_view text, int32_t& value) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads "program0123456789abcdef".
bool TakeDigest(std::string_view text, ProblemClass& cls) {
  constexpr std::string_view kPrefix = "program";
  if (!text.starts_with(kPrefix)) return false;
  text.remove_prefix(kPrefix.size());
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), cls.program_digest, 16);
  return error == std::errc() && end == text.data() + text.size() && cls.program_digest != 0;
}

// Reads "world4x2".
bool ParseShape(std::string_view text, ProblemClass& cls) {
  const size_t cross = text.find('x');
  return cross != std::string_view::npos &&
         ParseAfter("world", text.substr(0, cross), cls.world_size) &&
         ParseAfter("x", text.substr(cross), cls.ranks_per_node);
}

}  // namespace

std::span<const Collective> AllCollectives() { return kCollectives; }
std::span<const Reduction> AllReductions() { return kReductions; }
std::span<const Dtype> AllDtypes() { return kDtypes; }
std::span<const Dtype> AllValueDtypes() { return kValueDtypes; }
std::span<const BufferClass> AllBufferClasses() { return kBufferClasses; }

std::string_view Name(Collective collective) { return NameIn(kCollectiveWords, collective); }

std::string_view Name(Reduction reduction) {
  return reduction == Reduction::kNone ? "none" : NameIn(kReductionWords, reduction);
}

std::string_view Name(Dtype dtype) { return NameIn(kDtypeWords, dtype); }

std::string_view Name(MemoryKind kind) { return kind == MemoryKind::kHost ? "host" : "cuda"; }

std::string_view Name(BufferClass buffer_class) {
  return buffer_class == BufferClass::kPlain ? "plain" : "symmetric";
}

Result<Collective> ParseCollective(std::string_view text) {
  return ParseName(text, kCollectives, "collective");
}
Result<Reduction> ParseReduction(std::string_view text) {
  return ParseName(text, kReductions, "reduction");
}
Result<Dtype> ParseDtype(std::string_view text) { return ParseName(text, kDtypes, "dtype"); }
Result<Dtype> ParseValueDtype(std::string_view text) {
  return ParseName(text, kValueDtypes, "dtype");
}
Result<BufferClass> ParseBufferClass(std::string_view text) {
  return ParseName(text, kBufferClasses, "kind of buffers");
}

uint64_t SizeBytes(Dtype dtype) {
  const DtypeWord* const word = FindWord(kDtypeWords, dtype);
  return word == nullptr ? 1 : word->bytes;
}

NumberKind KindOf(Dtype dtype) {
  const DtypeWord* const word = FindWord(kDtypeWords, dtype);
  return word == nullptr ? NumberKind::kStored : word->kind;
}

bool Reduces(Collective collective) {
  const CollectiveWord* const word = FindWord(kCollectiveWords, collective);
  return word != nullptr && word->reduces;
}

uint64_t Problem::bytes() const {
  const uint64_t blocks = HasBlockPerRank(cls.collective) ? cls.world_size : 1;
  return count * blocks * SizeBytes(cls.dtype);
}

uint64_t Problem::send_elements() const {
  const bool blocks =
      cls.collective == Collective::kReduceScatter || cls.collective == Collective::kAllToAll;
  return blocks ? count * cls.world_size : count;
}

uint64_t Problem::recv_elements() const {
  const bool blocks =
      cls.collective == Collective::kAllGather || cls.collective == Collective::kAllToAll;
  return blocks ? count * cls.world_size : count;
}

uint64_t CountForBytes(const ProblemClass& cls, uint64_t bytes) {
  const uint64_t blocks = HasBlockPerRank(cls.collective) ? cls.world_size : 1;
  return bytes / (blocks * SizeBytes(cls.dtype));
}

std::string ToText(const ProblemClass& cls) {
  std::string text =
      fmt::format("{}/{}/{}/{}/{}/{}/world{}x{}", Name(cls.collective), Name(cls.reduction),
                  Name(cls.dtype), Name(cls.memory), Name(cls.buffer_class),
                  cls.in_place ? "in_place" : "out_of_place", cls.world_size, cls.ranks_per_node);
  if (cls.collective == Collective::kBroadcast) text += fmt::format("/root{}", cls.root);
  if (cls.program_digest != 0) text += fmt::format("/program{:016x}", cls.program_digest);
  return text;
}

Result<ProblemClass> ParseProblemClass(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t end = std::min(rest.find('/'), rest.size());
    parts.push_back(rest.substr(0, end));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  const auto malformed = [&](std::string_view part) {
    return Fail(ErrorCode::kUsage, fmt::format("'{}' is not a problem class", text),
                fmt::format("at '{}'", part));
  };
  ProblemClass cls;
  if (parts.size() > 7 && TakeDigest(parts.back(), cls)) parts.pop_back();
  if (parts.size() < 7 || parts.size() > 8) return malformed(text);
  COTUNE_TRY(const auto collective, ParseCollective(parts[0]));
  cls.collective = collective;
  if (parts[1] != "none") {
    COTUNE_TRY(const auto reduction, ParseReduction(parts[1]));
    cls.reduction = reduction;
  }
  COTUNE_TRY(const auto dtype, ParseDtype(parts[2]));
  cls.dtype = dtype;
  if (parts[3] != "host" && parts[3] != "cuda") return malformed(parts[3]);
  cls.memory = parts[3] == "host" ? MemoryKind::kHost : MemoryKind::kCuda;
  if (parts[4] != "plain" && parts[4] != "symmetric") return malformed(parts[4]);
  cls.buffer_class = parts[4] == "plain" ? BufferClass::kPlain : BufferClass::kSymmetric;
  if (parts[5] != "in_place" && parts[5] != "out_of_place") return malformed(parts[5]);
  cls.in_place = parts[5] == "in_place";
  int32_t root = 0;
  if (!ParseShape(parts[6], cls) || (parts.size() == 8 && !ParseAfter("root", parts[7], root))) {
    return malformed(parts[6]);
  }
  cls.root = root;
  COTUNE_RETURN_IF_ERROR(Validate(cls));
  if (ToText(cls) != text) return malformed(text);
  return cls;
}

std::string ToText(const Problem& problem) {
  return fmt::format("{}/count{}", ToText(problem.cls), problem.count);
}

Status Validate(const ProblemClass& cls) {
  const std::string where = ToText(cls);
  if (cls.world_size < 1) {
    return Fail(ErrorCode::kUsage, fmt::format("world size {} is less than 1", cls.world_size),
                where);
  }
  if (Reduces(cls.collective) != (cls.reduction != Reduction::kNone)) {
    return Fail(ErrorCode::kUsage,
                fmt::format("{} {}", Name(cls.collective),
                            Reduces(cls.collective) ? "needs a reduction" : "takes no reduction"),
                where);
  }
  if (std::find(kDtypes.begin(), kDtypes.end(), cls.dtype) == kDtypes.end()) {
    return Fail(ErrorCode::kUsage,
                fmt::format("{} values travel as u8, not by themselves", Name(cls.dtype)), where);
  }
  if (cls.root < 0 || cls.root >= cls.world_size) {
    return Fail(ErrorCode::kUsage,
                fmt::format("root {} is not a rank of a group of {}", cls.root, cls.world_size),
                where);
  }
  if (cls.root != 0 && cls.collective != Collective::kBroadcast) {
    return Fail(ErrorCode::kUsage, fmt::format("{} has no root", Name(cls.collective)), where);
  }
  if (cls.ranks_per_node < 0 || cls.ranks_per_node > cls.world_size) {
    return Fail(
        ErrorCode::kUsage,
        fmt::format("{} ranks on each host in a group of {}", cls.ranks_per_node, cls.world_size),
        where);
  }
  return {};
}

double AlgorithmBandwidthGBps(uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

double BusBandwidthFactor(Collective collective, int world_size) {
  const double n = world_size;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    case Collective::kBroadcast:
      return 1;
  }
  return 1;
}

}  // namespace cotune
