#include "core/problem/problem.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "core/base/nearest_name.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kAllGather,
                                     Collective::kReduceScatter, Collective::kAllToAll,
                                     Collective::kBroadcast};
constexpr std::array kReductions = {Reduction::kSum, Reduction::kProduct, Reduction::kMin,
                                    Reduction::kMax, Reduction::kAverage};
constexpr std::array kDtypes = {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBf16,
                                Dtype::kI32, Dtype::kI64, Dtype::kU8};
constexpr std::array kValueDtypes = {Dtype::kF32,    Dtype::kF64,   Dtype::kF16, Dtype::kBf16,
                                     Dtype::kI32,    Dtype::kI64,   Dtype::kU8,  Dtype::kI8,
                                     Dtype::kF8E4M3, Dtype::kF8E5M2};
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
std::span<const BufferClass> AllBufferClasses() { return kBufferClasses; }

std::string_view Name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
  }
  return "invalid";
}

std::string_view Name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return "none";
    case Reduction::kSum:
      return "sum";
    case Reduction::kProduct:
      return "product";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAverage:
      return "average";
  }
  return "invalid";
}

std::string_view Name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "f32";
    case Dtype::kF64:
      return "f64";
    case Dtype::kF16:
      return "f16";
    case Dtype::kBf16:
      return "bf16";
    case Dtype::kI32:
      return "i32";
    case Dtype::kI64:
      return "i64";
    case Dtype::kU8:
      return "u8";
    case Dtype::kI8:
      return "i8";
    case Dtype::kF8E4M3:
      return "f8_e4m3";
    case Dtype::kF8E5M2:
      return "f8_e5m2";
  }
  return "invalid";
}

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
  switch (dtype) {
    case Dtype::kF64:
    case Dtype::kI64:
      return 8;
    case Dtype::kF32:
    case Dtype::kI32:
      return 4;
    case Dtype::kF16:
    case Dtype::kBf16:
      return 2;
    case Dtype::kU8:
    case Dtype::kI8:
    case Dtype::kF8E4M3:
    case Dtype::kF8E5M2:
      return 1;
  }
  return 1;
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
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
