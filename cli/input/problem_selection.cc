#include "cli/input/problem_selection.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/counted.h"
#include "core/base/nearest_name.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

constexpr std::string_view kDefaultSizes = "1K:4M:x2";
// The buckets of gradients and the activations of long prompts. On host memory calls of that size
// take milliseconds, and on two GPUs 0.2 ms.
constexpr std::string_view kDefaultSizesOnGpus = "1K:4M:x2,16M,64M";

// The sizes that are tuned if no flag and no setting names any. The rows of programs follow from
// sizes as well, and collectives beside programs have the sizes of those.
std::string_view DefaultSizes(MemoryKind memory, bool has_programs) {
  return memory == MemoryKind::kCuda && !has_programs ? kDefaultSizesOnGpus : kDefaultSizes;
}

// Other libraries' names of element types.
constexpr std::pair<std::string_view, std::string_view> kDtypesElsewhere[] = {
    {"float", "f32"},     {"float32", "f32"}, {"double", "f64"}, {"float64", "f64"},
    {"half", "f16"},      {"float16", "f16"}, {"int", "i32"},    {"int32", "i32"},
    {"bfloat16", "bf16"}, {"long", "i64"},    {"int64", "i64"},  {"uint8", "u8"},
};

// "f8" is near "u8", and no other kind of number is meant by it.
std::string NearestDtype(std::string_view typed, std::vector<std::string_view> names) {
  for (const auto& [elsewhere, name] : kDtypesElsewhere) {
    if (typed == elsewhere) return std::string(name);
  }
  std::erase_if(names, [&](std::string_view name) {
    return typed.empty() || std::tolower(static_cast<unsigned char>(typed.front())) != name.front();
  });
  return NearestName(typed, names);
}

// "known: f32, ..., all; did you mean f32?"
template <typename Value>
std::string KnownValuesText(std::string_view typed, std::span<const Value> all) {
  std::vector<std::string_view> names;
  for (const Value value : all) names.push_back(Name(value));
  names.push_back("all");
  const std::string nearest =
      std::is_same_v<Value, Dtype> ? NearestDtype(typed, names) : NearestName(typed, names);
  return KnownNamesText("", names) +
         (nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

template <typename Value>
Result<std::vector<Value>> SelectNames(const std::vector<std::string>& names,
                                       std::span<const Value> all,
                                       Result<Value> (*parse)(std::string_view),
                                       std::string_view flag) {
  std::vector<Value> values;
  const auto add = [&](Value value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  for (const std::string& name : names) {
    if (name == "all") {
      for (const Value value : all) add(value);
      continue;
    }
    Result<Value> value = parse(name);
    if (!value) {
      Error error = value.error();
      if (error.where.empty()) error.where = flag;
      error.next_step = KnownValuesText(name, all);
      return tl::make_unexpected(std::move(error));
    }
    add(*value);
  }
  return values;
}

Result<std::vector<uint64_t>> SelectSizes(std::string_view text) {
  Result<std::vector<uint64_t>> sizes = ParseSizes(text);
  if (!sizes) {
    Error error = sizes.error();
    error.where = "--sizes, " + error.where;
    return tl::make_unexpected(std::move(error));
  }
  return sizes;
}

uint64_t RoundedBytes(const ProblemClass& cls, uint64_t asked_bytes) {
  return Problem{cls, CountForBytes(cls, asked_bytes), 0}.bytes();
}

// Size 0 is too small as well: its calls move nothing, so that their times show nothing about those
// of other sizes.
bool IsTooSmall(const ProblemClass& cls, uint64_t asked_bytes) {
  return RoundedBytes(cls, asked_bytes) == 0;
}

std::string SizeText(const ProblemClass& cls, uint64_t bytes) {
  return fmt::format("{} {} {}", Name(cls.collective), Name(cls.dtype), FormatSizeBytes(bytes));
}

// The first few of them: "a, b, and 3 more".
std::string SomeOf(const std::vector<std::string>& texts) {
  constexpr size_t kShownMax = 4;
  const std::span<const std::string> shown(texts.data(), std::min(texts.size(), kShownMax));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (texts.size() > shown.size())
    text += fmt::format(", and {} more", texts.size() - shown.size());
  return text;
}

// Leaves classes of which no size remains out.
Status LeaveOutTooSmall(ProblemSelection& selection, std::string_view where) {
  for (const ProblemClass& cls : selection.classes) {
    for (const uint64_t bytes : selection.sizes_bytes) {
      if (!IsTooSmall(cls, bytes)) continue;
      // Reductions and kinds of buffers have the same text.
      std::string text = SizeText(cls, bytes);
      std::vector<std::string>& texts = selection.too_small;
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
        texts.push_back(std::move(text));
      }
    }
  }
  selection.left_out_classes = std::erase_if(
      selection.classes, [&](const ProblemClass& cls) { return selection.SizesOf(cls).empty(); });
  if (!selection.classes.empty()) return {};
  return Fail(ErrorCode::kUsage, "no size has an element for every rank", std::string(where),
              SomeOf(selection.too_small), "ask for larger sizes");
}

}  // namespace

std::vector<uint64_t> ProblemSelection::SizesOf(const ProblemClass& cls) const {
  std::vector<uint64_t> sizes = sizes_bytes;
  std::erase_if(sizes, [&](uint64_t bytes) { return IsTooSmall(cls, bytes); });
  return sizes;
}

bool IsDefaultSize(const ProblemClass& cls, uint64_t bytes) {
  const std::vector<uint64_t> sizes = ParseSizes(DefaultSizes(cls.memory, false)).value();
  return std::any_of(sizes.begin(), sizes.end(),
                     [&](uint64_t size) { return RoundedBytes(cls, size) == bytes; });
}

namespace {

// A flag that would do nothing is a mistake of the user.
Status CheckFlagsFit(const ProblemFlags& flags) {
  const auto wrong = [](const char* flag, const char* cause, const char* next_step) {
    return Fail(ErrorCode::kUsage, fmt::format("{} has no effect here", flag), flag, cause,
                next_step);
  };
  if (flags.programs.empty()) {
    if (flags.rows) {
      return wrong("--rows", "only programs have rows", "give --program FILE, or --sizes");
    }
    return {};
  }
  if (!flags.collectives.empty()) return {};
  const char* const cause =
      "a program defines it by itself, and no --collective is given beside it";
  if (!flags.in_place.empty())
    return wrong("--in-place", cause, "leave it out, or add --collective");
  if (!flags.dtypes.empty()) return wrong("--dtype", cause, "leave it out, or add --collective");
  if (!flags.reductions.empty()) {
    return wrong("--reduction", cause, "leave it out, or add --collective");
  }
  if (flags.rows && flags.sizes) {
    return wrong("--sizes", "--rows gives the size of the programs", "give one of them");
  }
  return {};
}

tl::unexpected<Error> NoSymmetricBuffers() {
  return Fail(ErrorCode::kUsage, "host memory has no symmetric buffers", "--buffers",
              "its ranks exchange data through shared memory of their own", "leave --buffers out");
}

}  // namespace

Result<BufferClass> SelectBufferClass(const std::string& name, MemoryKind memory) {
  if (name.empty()) return BufferClass::kPlain;
  const Result<BufferClass> buffers = ParseBufferClass(name);
  if (!buffers) {
    Error error = buffers.error();
    error.where = "--buffers";
    return tl::make_unexpected(std::move(error));
  }
  if (*buffers == BufferClass::kSymmetric && memory == MemoryKind::kHost) {
    return NoSymmetricBuffers();
  }
  return *buffers;
}

namespace {

// Returns whether the fastest choice depends on whether calls are in place, so that a tune measures
// both unless flags select its collectives or places. On GPUs the winner of calls out of place is
// within 2.6 % of that of calls in place (104 cells, 2 and 4 H200); on host memory an all_gather in
// place by it took up to 1.65 times as long, and an all_reduce up to 1.2 times (2 ranks).
bool DependsOnPlace(const ProblemClass& cls) {
  const bool has_rows_in_place =
      cls.collective == Collective::kAllGather || cls.collective == Collective::kAllReduce;
  return cls.memory == MemoryKind::kHost && has_rows_in_place;
}

// Returns true if no collective is named by itself.
bool NamesAll(const std::vector<std::string>& collectives) {
  return collectives.empty() || collectives == std::vector<std::string>{"all"};
}

// Adds the class for each kind of buffer, in and out of place as the flags ask.
Status AddPlacesAndBuffers(const ProblemFlags& flags, const std::vector<BufferClass>& buffers,
                           ProblemClass cls, ProblemSelection& selection) {
  const bool is_default = flags.in_place.empty() && NamesAll(flags.collectives);
  const bool is_both = is_default ? DependsOnPlace(cls) : flags.in_place == "both";
  for (const bool in_place : {false, true}) {
    const bool is_asked = is_both || (flags.in_place == "yes") == in_place;
    // A broadcast runs by one row, whether its buffers are the same or not.
    const bool is_second_broadcast =
        is_both && in_place && cls.collective == Collective::kBroadcast;
    if (!is_asked || is_second_broadcast) continue;
    cls.in_place = in_place;
    COTUNE_RETURN_IF_ERROR(Validate(cls));
    for (const BufferClass buffer_class : buffers) {
      cls.buffer_class = buffer_class;
      selection.classes.push_back(cls);
    }
  }
  return {};
}

// The element types of a tune without --dtype: what models compute with on that memory.
std::vector<std::string> DefaultDtypes(MemoryKind memory) {
  if (memory == MemoryKind::kCuda) return {"bf16", "f32"};
  return {"f32"};
}

}  // namespace

Result<ProblemSelection> SelectProblems(const ProblemFlags& flags, MemoryKind memory,
                                        int32_t world_size,
                                        const std::vector<uint64_t>& default_sizes_bytes) {
  COTUNE_RETURN_IF_ERROR(CheckFlagsFit(flags));
  const auto or_default = [](const std::vector<std::string>& names, const char* name) {
    return names.empty() ? std::vector<std::string>{name} : names;
  };
  COTUNE_TRY(const auto collectives,
             SelectNames(or_default(flags.collectives, "all"), AllCollectives(), ParseCollective,
                         "--collective"));
  COTUNE_TRY(const auto dtypes,
             SelectNames(flags.dtypes.empty() ? DefaultDtypes(memory) : flags.dtypes, AllDtypes(),
                         ParseDtype, "--dtype"));
  COTUNE_TRY(const auto reductions, SelectNames(or_default(flags.reductions, "sum"),
                                                AllReductions(), ParseReduction, "--reduction"));
  COTUNE_TRY(auto buffers, SelectNames(or_default(flags.buffers, "plain"), AllBufferClasses(),
                                       ParseBufferClass, "--buffers"));
  ProblemSelection selection;
  if (memory == MemoryKind::kHost) {
    selection.left_out_symmetric = std::erase(buffers, BufferClass::kSymmetric) > 0;
  }
  if (buffers.empty()) return NoSymmetricBuffers();
  const std::string_view usual_sizes = DefaultSizes(memory, !flags.programs.empty());
  COTUNE_TRY(auto sizes, SelectSizes(flags.sizes ? *flags.sizes : usual_sizes));

  selection.sizes_bytes = std::move(sizes);
  if (!flags.sizes && !default_sizes_bytes.empty()) {
    selection.sizes_bytes = default_sizes_bytes;
  }
  const bool is_from_settings = !flags.sizes && !default_sizes_bytes.empty();
  for (const BufferClass buffer_class : buffers) {
    COTUNE_TRY(auto programs, SelectPrograms(flags.programs, flags.rows, selection.sizes_bytes,
                                             {memory, world_size, world_size, buffer_class}));
    std::move(programs.begin(), programs.end(), std::back_inserter(selection.programs));
  }
  for (const ProgramSelection& each : selection.programs) {
    const bool is_idle = flags.rows && !each.program.graph().has_rows();
    if (is_idle &&
        std::count(selection.idle_rows.begin(), selection.idle_rows.end(), each.file) == 0) {
      selection.idle_rows.push_back(each.file);
    }
  }
  if (!flags.programs.empty() && flags.collectives.empty()) {
    if (flags.sizes && !AnyHasRows(selection.programs)) {
      return tl::make_unexpected(NoRows(flags.programs.front(), "--sizes"));
    }
    return selection;
  }
  for (const Collective collective : collectives) {
    for (const Dtype dtype : dtypes) {
      for (const Reduction reduction : reductions) {
        ProblemClass cls{.collective = collective, .dtype = dtype};
        cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
        cls.memory = memory;
        cls.world_size = cls.ranks_per_node = world_size;
        COTUNE_RETURN_IF_ERROR(AddPlacesAndBuffers(flags, buffers, cls, selection));
        if (!Reduces(collective)) break;
      }
    }
  }
  COTUNE_RETURN_IF_ERROR(
      LeaveOutTooSmall(selection, is_from_settings ? "collective_multi_kernel_hints" : "--sizes"));
  return selection;
}

std::string RoundingText(const ProblemSelection& selection) {
  std::vector<std::string> rounded;
  for (const ProblemClass& cls : selection.classes) {
    for (const uint64_t asked_bytes : selection.SizesOf(cls)) {
      const uint64_t bytes = RoundedBytes(cls, asked_bytes);
      if (bytes == asked_bytes) continue;
      rounded.push_back(SizeText(cls, asked_bytes) + " -> " + FormatSizeBytes(bytes));
    }
  }
  std::string text;
  if (!rounded.empty()) {
    text = "sizes are rounded down to whole elements, the same number for every rank: " +
           SomeOf(rounded);
  }
  if (!selection.too_small.empty()) {
    text += fmt::format("{}left out, since they are less than an element for every rank: {}",
                        text.empty() ? "" : "; ", SomeOf(selection.too_small));
  }
  for (const ProgramSelection& program : selection.programs) {
    if (program.left_out_rows.empty()) continue;
    std::vector<std::string> rows;
    for (const uint64_t each : program.left_out_rows) rows.push_back(fmt::format("{}", each));
    text += fmt::format("{}{}: rows left out, since the ranks have no equal shares of them: {}",
                        text.empty() ? "" : "; ", program.file, SomeOf(rows));
  }
  if (!selection.idle_rows.empty()) {
    text += fmt::format("{}--rows has no effect on programs without R rows: {}",
                        text.empty() ? "" : "; ", SomeOf(selection.idle_rows));
  }
  if (selection.left_out_symmetric) {
    text += fmt::format("{}symmetric buffers are left out: host memory has none",
                        text.empty() ? "" : "; ");
  }
  return text;
}

Result<Problem> SelectProblem(const ExplainFlags& flags, MemoryKind memory, int32_t world_size,
                              std::string* rounding) {
  ProblemFlags problems;
  problems.collectives = {flags.collective};
  problems.dtypes = {flags.dtype};
  if (!flags.reduction.empty()) problems.reductions = {flags.reduction};
  problems.sizes = flags.size;
  if (flags.in_place) problems.in_place = "yes";
  if (!flags.buffers.empty()) problems.buffers = {flags.buffers};
  const Result<ProblemSelection> selection = SelectProblems(problems, memory, world_size);
  if (!selection) {
    Error error = selection.error();
    // Here they are arguments and not flags, and name one call.
    constexpr std::string_view kAll = ", all";
    const size_t end = std::min(error.next_step.find("; did"), error.next_step.size());
    if (std::string_view(error.next_step).substr(0, end).ends_with(kAll)) {
      error.next_step.erase(end - kAll.size(), kAll.size());
    }
    if (error.where == "--collective") error.where = "COLLECTIVE";
    if (error.where == "--dtype") error.where = "DTYPE";
    if (error.where.starts_with("--sizes")) error.where.replace(0, 7, "SIZE");
    return tl::make_unexpected(std::move(error));
  }
  const size_t classes = selection->classes.size() + selection->left_out_classes;
  const size_t sizes = selection->sizes_bytes.size();
  if (classes != 1 || sizes != 1) {
    return Fail(
        ErrorCode::kUsage, "explain takes one call", "COLLECTIVE SIZE DTYPE",
        fmt::format(
            "these arguments name {} (one for each collective, type and kind of buffer) at {}",
            Counted(static_cast<int64_t>(classes), "call"),
            Counted(static_cast<int64_t>(sizes), "size")),
        "write for example `cotune explain all_reduce 256K f32`");
  }
  const ProblemClass& cls = selection->classes.front();
  if (rounding != nullptr) *rounding = RoundingText(*selection);
  return Problem{cls, CountForBytes(cls, selection->sizes_bytes.front()), 0};
}

}  // namespace cotune::cli
